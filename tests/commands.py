"""Solera's commands as real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil

from solera.federation.operate.processes import Process, family


def environment() -> dict[str, str]:
    """With the tests' apps, and what the tests themselves import, for every process."""
    paths = [str(Path(__file__).parent / "federation"), *filter(None, sys.path)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "200"}


def solera(*args: object, timeout: float = 180) -> subprocess.CompletedProcess[str]:
    """A command that ends by itself."""
    command = [sys.executable, "-m", "solera", *map(str, args)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, env=environment(), check=False
    )


def wait_for(process: Process, words: str) -> None:
    end = time.monotonic() + 180
    while words not in process.said():
        assert process.is_running, process.said()
        assert time.monotonic() < end, process.said()
        time.sleep(0.1)


def is_running(pid: int) -> bool:
    """And not ended without anybody having asked."""
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def below(pid: int) -> list[int]:
    """The numbers of all that a process has started, and that still run."""
    return [each.pid for each in family(pid)]
