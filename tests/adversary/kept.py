"""Programs that are started again whenever they end, as a service manager does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from commands import below, environment

SOLERA = (sys.executable, "-m", "solera")


class Kept:
    """One of Solera's commands; what it says is in a log."""

    def __init__(self, log: Path, *command: object, pause: float = 1.0) -> None:
        self._command = [*SOLERA, *map(str, command)]
        self._log, self._pause = log, pause
        log.touch()
        self._over = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()

    def _keep(self) -> None:
        with self._log.open("ab") as log:
            while not self._over.is_set():
                self._process = subprocess.Popen(
                    self._command, env=environment(), stdout=log, stderr=subprocess.STDOUT
                )
                self.starts += 1
                self._process.wait()
                self._over.wait(self._pause)

    @property
    def pid(self) -> int | None:
        """Of the command, while it runs."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def child(self, words: str) -> int | None:
        """What the command has started, or what that has, if these words are in its command line."""
        pid = self.pid
        return next((each for each in below(pid) if words in command_line(each)), None) if pid else None

    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def stop(self) -> None:
        """Ask it to end, and start it no more."""
        self._over.set()
        while self._thread.is_alive():
            if pid := self.pid:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGINT)
            self._thread.join(15)


def command_line(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def wait_until(found, seconds: float, what: str) -> None:
    end = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < end, what
        time.sleep(0.5)
