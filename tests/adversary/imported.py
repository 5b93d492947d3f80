"""Imports by the real command, in a process of its own whose memory is measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from hostile_files import Hostile

from measured import python

MOST = 300  # megabytes that any import may take


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


def imported(device: Path, file: Hostile) -> Outcome:
    """Import a file as a person does, with --json."""
    columns = ["--columns", file.columns] if file.columns else []
    command = ("device", "import", device, file.format, file.path, *columns, "--json")
    code, stdout, stderr, peak = python("-m", "solera", *command)
    return Outcome(json.loads(stdout) if stdout else {}, code, stderr, peak)
