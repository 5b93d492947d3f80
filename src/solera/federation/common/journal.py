"""A file of JSON lines that only grows. An incomplete last line is removed before the next is added."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any, BinaryIO

from solera.core.errors import RunError

_STEP = 4096  # bytes that are looked at, from the end, for the last complete line


class Journal:
    """One such file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, line: dict[str, Any], *, sync: bool = False) -> None:
        """Add a line where the last complete one ends. With `sync`, it is on the disk when this returns."""
        data = (json.dumps(line) + "\n").encode()
        try:
            with os.fdopen(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
                file.truncate(_complete(file))
                file.seek(0, os.SEEK_END)
                file.write(data)
                file.flush()
                if sync:
                    os.fsync(file.fileno())
        except OSError as error:
            raise unwritable(self.path, error) from None

    def lines(self) -> list[dict[str, Any]]:
        """All complete lines; an incomplete last line is ignored."""
        if not self.path.exists():
            return []
        found = []
        for number, line in enumerate(self.path.read_bytes().splitlines(keepends=True), start=1):
            if not line.endswith(b"\n"):
                break
            try:
                entry = json.loads(line)
            except ValueError:
                entry = None
            if not isinstance(entry, dict):
                raise RunError(
                    f"{self.path}, line {number} is damaged",
                    "restore the file from a copy, or correct the line",
                )
            found.append(entry)
        return found


def unwritable(path: Path, error: OSError) -> RunError:
    """An error that says what to do about a disk that takes no more."""
    hint = "make room on the disk" if error.errno == errno.ENOSPC else "check the disk and the permissions"
    return RunError(
        f"{path} cannot be written: {error.strerror}",
        f"{hint}, then run again with --resume: nothing is lost",
    )


def _complete(file: BinaryIO) -> int:
    """Bytes up to the end of the last complete line."""
    end = file.seek(0, os.SEEK_END)
    while end:
        begin = max(0, end - _STEP)
        file.seek(begin)
        newline = file.read(end - begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        end = begin
    return 0
