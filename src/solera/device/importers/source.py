"""A file from outside, of which nothing is read beyond a budget."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from solera.core.errors import DataError
from solera.device.importers.budget import DEFAULT, Budget
from solera.device.importers.unpack import unpack

_SPLIT = "export a shorter period, or split the file"
_AS_EXPORTED = "give the original exported file"
LIKE_FROM = 3.5  # of 5 stars
BAD_ROW = "bad row"
_FAULTS = 3  # bad rows that are described


class Source:
    """The file, its budget, and what became of its rows.

    `like_from` is the lowest rating that counts as a like. `used` counts the rows by file, `unused` are the
    files that were not read, `left_out` counts rows by the reason they were left out for, and `faults` says
    what is wrong with the first bad rows.
    """

    def __init__(self, path: Path, budget: Budget = DEFAULT, like_from: float | None = None) -> None:
        self.path, self.budget = path, budget
        self.of_five = like_from is None  # then the default holds, which is one of five stars
        self.like_from = LIKE_FROM if like_from is None else like_from
        self.used: dict[str, int] = {}
        self.unused: list[str] = []
        self.left_out: Counter[str] = Counter()
        self.faults: list[str] = []
        self._rows = 0

    def bad(self, where: str, what: str) -> None:
        """Leave out a row that cannot be read."""
        self.left_out[BAD_ROW] += 1
        if len(self.faults) < _FAULTS:
            self.faults.append(f"{where}: {what}")

    @contextmanager
    def text(self, path: Path | None = None) -> Iterator[TextIO]:
        """The file as text, or another one of the same folder."""
        path = path or self.path
        most, total = self.budget.file_bytes, 0

        def check(size: int) -> None:
            if size > most:
                raise DataError(f"{path} has more than {most:,} bytes, which is the limit", _SPLIT)

        with path.open("rb", buffering=0) as file:
            check(path.stat().st_size)

            def read(count: int) -> bytes:  # counts as well, because a pipe has no size
                nonlocal total
                piece = file.read(count) or b""
                total += len(piece)
                check(total)
                return piece

            yield _text(read)

    def unpacked(self, wanted: Callable[[str], bool]) -> Iterator[tuple[str, TextIO]]:
        """The names and texts of those entries of a zip that are wanted."""
        for name, read in unpack(self.path, self.budget, wanted):
            yield name, _text(read)

    def lines(self, text: TextIO, within: str = "") -> Iterator[tuple[str, str]]:
        """Where each line is, and the line; `within` names the entry of a zip."""
        most, number = self.budget.line, 0
        before = f"{within}, " if within else ""
        while line := self.decoded(lambda: text.readline(most + 1)):
            number += 1
            where = f"{before}line {number}"
            if len(line) > most:
                raise self.too_long(where)
            if "\0" in line:
                raise DataError(
                    f"{self.path}, {where}: a NUL byte, which a text file cannot contain", _AS_EXPORTED
                )
            self.count_row()
            yield where, line

    def decoded(self, read: Callable[[], str]) -> str:
        """What is read, if it is text."""
        try:
            return read()
        except UnicodeDecodeError:
            raise DataError(f"{self.path} is not text in UTF-8", _AS_EXPORTED) from None

    def count_row(self) -> None:
        """Count one more row."""
        self._rows += 1
        if self._rows > self.budget.rows:
            raise DataError(
                f"{self.path} has more than {self.budget.rows:,} rows, which is the limit", _SPLIT
            )

    def malformed(self, where: str, what: str) -> DataError:
        """An error that names the place."""
        return DataError(f"{self.path}, {where}: {what}", "correct or remove it, or export the file again")

    def too_long(self, where: str) -> DataError:
        """An error about a line, a record or an entry of a list."""
        return self.malformed(where, f"more than {self.budget.line:,} characters, the most that are read")


class _Stream(io.RawIOBase):
    """What a function reads, as a file."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._read(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)


def _text(read: Callable[[int], bytes]) -> TextIO:
    return io.TextIOWrapper(io.BufferedReader(_Stream(read), 1 << 16), encoding="utf-8-sig", newline="")
