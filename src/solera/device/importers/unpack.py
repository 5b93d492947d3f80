"""The entries of a zip, unpacked in small pieces and counted. What its headers say is not relied on."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import IO

from solera.core.errors import DataError
from solera.core.text import clean_text
from solera.device.importers.budget import Budget

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
