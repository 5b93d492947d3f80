"""A command in a process of its own, and the most memory that it took."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import NamedTuple

# A process starts with the peak of its parent, and pytest's is large: a small one stands between.
_BETWEEN = """
import json, resource, subprocess, sys
done = subprocess.run(sys.argv[1:], capture_output=True)
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
print(json.dumps([done.returncode, done.stdout.decode(), done.stderr.decode(), peak]))
"""


class Measured(NamedTuple):
    """How a command ended, what it wrote, and its peak in megabytes."""

    code: int
    stdout: str
    stderr: str
    peak: float


def python(*arguments: object) -> Measured:
    """Run Python with these arguments."""
    command = [sys.executable, "-c", _BETWEEN, sys.executable, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return Measured(*json.loads(done.stdout))
