"""A file from outside, of which nothing is read beyond a budget."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, TextIO

from solera.core.errors import DataError
from solera.core.text import clean_text


@dataclass(frozen=True)
class Budget:
    """The limits of one import. Together they keep it below 300 MB of memory, whatever the file is.

    They are far above what people have: twenty years of 100 songs a day are 730,000 listens in a zip of 240
    entries.
    """

    file_bytes: int = 1 << 30  # of the file on the disk
    unpacked_bytes: int = 4 << 30  # of all entries of a zip that are read
    ratio: int = 250  # of these to the zip's own; deflate reaches 1,032, listens to one song all day about 50
    zip_entries: int = 10_000
    line: int = 1 << 20  # characters of a line, of a CSV record, or of one entry of a JSON list
    depth: int = 32  # of JSON lists and objects in each other
    rows: int = 2_000_000  # lines of text, or entries of a JSON list
    name: int = 500  # characters of a title, an artist's name or an id
    users: int = 1_000  # whose plays one file holds
    films: int = 50_000  # of an export whose files are put together


DEFAULT = Budget()


# zlib unpacks no more bytes at once than it is asked for. The other methods of a zip may unpack gigabytes.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 1  # a bit of an entry's flags
_HEADER_BYTES = 30  # before an entry's content, at least
_LISTING_BYTES = 100  # of an entry in the directory; a real one has about 80
_AGAIN = "export it again"
_DAMAGE = (  # zipfile has no one error for what a file may do to it
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    OverflowError,
)


def unpack(
    path: Path, budget: Budget, wanted: Callable[[str], bool]
) -> Iterator[tuple[str, Callable[[int], bytes]]]:
    """The name of each wanted entry, and a function that reads so many bytes of it."""
    size = path.stat().st_size
    most = min(budget.unpacked_bytes, budget.ratio * size)
    if size > budget.file_bytes:
        raise DataError(
            f"{path} has {size:,} bytes; an import reads at most {budget.file_bytes:,}",
            "export a shorter period",
        )
    total = 0

    def check(count: int) -> None:
        if count > most:
            raise DataError(
                f"{path} unpacks to more than {most:,} bytes, the most that an import reads"
                f" of a zip of {size:,} bytes",
                "export it again, or a shorter period",
            )

    def counted(content: IO[bytes]) -> Callable[[int], bytes]:
        def read(count: int) -> bytes:
            nonlocal total
            with _damage(path):
                piece = content.read(count)
            total += len(piece)
            check(total)
            return piece

        return read

    with _Directory(path, budget.zip_entries) as file, _opened(path, file) as archive:
        entries = archive.infolist()
        _check(path, entries, budget.zip_entries)
        chosen = [entry for entry in entries if wanted(entry.filename)]
        for entry in chosen:
            _check_readable(path, entry)
        check(sum(entry.file_size for entry in chosen))  # spares the work where the headers are true
        for entry in chosen:
            with _damage(path):
                content = archive.open(entry)
            with content:
                yield _shown(entry), counted(content)


class _Directory(io.BufferedReader):
    """The file of a zip. zipfile reads its directory in one piece, which must not be large."""

    def __init__(self, path: Path, entries: int) -> None:
        super().__init__(io.FileIO(path))
        self._path, self._entries = path, entries

    def read(self, size: int | None = -1, /) -> bytes:
        most = self._entries * _LISTING_BYTES
        if size is not None and size > most:
            raise _too_many(self._path, self._entries)
        return super().read(most if size is None or size < 0 else size)


def _opened(path: Path, file: io.BufferedReader) -> zipfile.ZipFile:
    with _damage(path):
        return zipfile.ZipFile(file)


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    try:
        yield
    except _DAMAGE:
        raise DataError(f"{path} is not a zip, or is damaged", _AGAIN) from None


def _check(path: Path, entries: list[zipfile.ZipInfo], most: int) -> None:
    if len(entries) > most:
        raise _too_many(path, most)
    for entry, after in pairwise(sorted(entries, key=lambda entry: entry.header_offset)):
        if entry.header_offset + _HEADER_BYTES + entry.compress_size > after.header_offset:
            raise DataError(f"{path} has overlapping entries, which a valid zip file cannot have", _AGAIN)


def _check_readable(path: Path, entry: zipfile.ZipInfo) -> None:
    if entry.flag_bits & _ENCRYPTED:
        raise DataError(f"{path}: {_shown(entry)} is encrypted", "give a zip without a password")
    if entry.compress_type not in _METHODS:
        raise DataError(
            f"{path}: {_shown(entry)} uses an unsupported compression method",
            "unpack the zip, then import its .jsonl files one by one",
        )


def _shown(entry: zipfile.ZipInfo) -> str:
    return clean_text(entry.filename)[:100]


def _too_many(path: Path, most: int) -> DataError:
    return DataError(f"{path} has more than {most:,} entries, which is the limit for a zip file", _AGAIN)


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
