"""Imports by the real command, each in a process of its own whose memory is measured."""

from __future__ import annotations

import atexit
import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from hostile_files import Hostile

MOST = 300  # megabytes that any import may take
# A process that has imported what an import needs, and becomes two for each: starting one anew takes
# a second. It is small, and its copy starts with its memory.
_FORKS = """
import json, os, sys, tempfile
from solera.cli import main
from solera.device import importers

for line in sys.stdin:
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        if not (child := os.fork()):
            os.dup2(stdout.fileno(), 1)
            os.dup2(stderr.fileno(), 2)
            sys.argv = ["solera", *json.loads(line)]
            code = 1
            try:
                main()
            except SystemExit as ended:
                code = ended.code
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        _, status, used = os.wait4(child, 0)
        said = [each.seek(0) or each.read().decode() for each in (stdout, stderr)]
    print(json.dumps([os.waitstatus_to_exitcode(status), *said, used.ru_maxrss / 1024]), flush=True)
"""


class Outcome(NamedTuple):
    """What the command answered, how it ended, and the most megabytes that it held."""

    answer: dict[str, Any]
    code: int
    complaint: str
    peak: float

    @property
    def refused(self) -> bool:
        """Whether it ended in an error with a next step, and not in a traceback."""
        return self.code == 2 and bool(self.answer.get("error")) and bool(self.answer.get("next"))


@cache
def _forks() -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _FORKS]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(process.kill)
    return process


def imported(device: Path, file: Hostile) -> Outcome:
    """Import a file as a person does, with --json."""
    columns = ["--columns", file.columns] if file.columns else []
    words = ["device", "import", str(device), file.format, str(file.path), *columns, "--json"]
    forks = _forks()
    assert forks.stdin and forks.stdout
    print(json.dumps(words), file=forks.stdin, flush=True)
    code, stdout, stderr, peak = json.loads(forks.stdout.readline())
    return Outcome(json.loads(stdout) if stdout else {}, code, stderr, peak)
