"""Columns of a large file, read one at a time, so that a file is never in memory as a whole."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import polars as pl

LARGE = 16 * 2**20  # bytes from which a text file is read by columns
_CHUNK = 2**24


class Columns(Mapping[str, pl.Series]):
    """Columns by name. Each access reads the column from the file again."""

    def __init__(self, names: list[str], read: Callable[[str], pl.Series]) -> None:
        self._names, self._read = names, read

    def __getitem__(self, name: str) -> pl.Series:
        if name not in self._names:
            raise KeyError(name)
        return self._read(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def parquet_columns(path: Path) -> Columns:
    """The columns of a Parquet file."""
    names = list(pl.read_parquet_schema(path))
    return Columns(names, lambda name: pl.read_parquet(path, columns=[name])[name])


def text_columns(path: Path, separator: str) -> tuple[Columns, int] | None:
    """The columns of a large text file with a header, and its number of rows.

    None if the file is small, has quotes, is not UTF-8, or may have a line with too few or too many fields:
    these files are read line by line, so that an error can name the line.
    """
    if path.stat().st_size < LARGE:
        return None
    with path.open("rb") as file:
        header = file.readline().decode("utf-8-sig", errors="replace").strip("\r\n")
    names = [name.strip() for name in header.split(separator)]
    lines, separators, plain = _counted(path, separator.encode())
    if not plain or separators != lines * (len(names) - 1) or len(set(names)) < len(names):
        return None

    def read(name: str) -> pl.Series:
        return pl.read_csv(
            path,
            separator=separator,
            has_header=False,
            skip_rows=1,
            columns=[names.index(name)],
            schema=dict.fromkeys(names, pl.String),
            quote_char=None,
        ).to_series()

    try:
        last = read(names[-1])  # null where a line has too few fields
    except pl.exceptions.PolarsError:
        return None
    return (Columns(names, read), len(last)) if len(last) == lines - 1 and not last.null_count() else None


def _counted(path: Path, separator: bytes) -> tuple[int, int, bool]:
    """Lines and separators of a file, and whether it is UTF-8 text without quotes."""
    lines = separators = 0
    last = b""
    decoder = codecs.getincrementaldecoder("utf-8")()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            try:
                decoder.decode(chunk)
            except UnicodeDecodeError:
                return 0, 0, False
            if b'"' in chunk:
                return 0, 0, False
            lines += chunk.count(b"\n")
            separators += chunk.count(separator)
            last = chunk[-1:]
    return lines + (last != b"\n"), separators, True
