"""Read text files as columns, with the line number of every record. No record is dropped silently.

Lines are split by polars' string functions rather than by its CSV reader. This supports separators of
more than one character ("::"), never guesses a type, and keeps the line number for error messages.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from solera.core.errors import DataError
from solera.core.files import replacing_file
from solera.core.types import Ints

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


_DIGITS = r"^(0|[1-9][0-9]*)$"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, eq=False)
class Table:
    """A file's columns, with the line numbers needed to report errors."""

    path: Path
    columns: Mapping[str, pl.Series]
    lines: Ints | range  # 1-based line of every record, or its row in a binary file
    texts: pl.Series | None  # the line of every record as it is in the file; None for a binary file

    def fault(self, row: int, problem: str) -> DataError:
        """The error to raise for a bad record."""
        if self.texts is None:
            return DataError(f"{self.path}, row {self.lines[row]}: {problem}", "correct the row")
        return malformed(self.path, int(self.lines[row]), problem, self.texts[row])

    def ids(self, column: str) -> pl.Series:
        """A column of ids as text. Raises an error if one is empty."""
        return self._text(column, self.columns[column])

    def compact_ids(self, column: str) -> pl.Series:
        """A column of ids, as whole numbers if all of them are, else as text."""
        values = self.columns[column]
        if values.dtype.is_float() and (values.is_nan() | (values == values.floor())).fill_null(True).all():
            values = values.fill_nan(None).cast(pl.Int64)  # whole numbers, with gaps
        numbers = _whole_numbers(values)
        return self._text(column, values) if numbers is None else numbers

    def _text(self, column: str, values: pl.Series) -> pl.Series:
        ids = values.cast(pl.String)
        empty = (ids.is_null() | (ids.str.strip_chars() == "")).arg_true()
        if len(empty):
            raise self.fault(empty[0], f"the id in column {column!r} is empty")
        return ids

    def times(self, column: str) -> Ints:
        """A column of times as integers.

        Integers stay as they are, whatever their unit; dates become milliseconds since 1970 (UTC if they have
        no time zone); numbers with a fraction are counted in thousandths.
        """
        values = self.columns[column]
        if values.dtype in (pl.Date, pl.Datetime):
            values = values.cast(pl.Datetime("ms")).dt.timestamp("ms")
        whole = None if values.dtype.is_float() else values.cast(pl.Int64, strict=False)
        if whole is not None and not whole.null_count():
            return np.asarray(whole.to_numpy(), dtype=np.int64)
        numbers = values.cast(pl.Float64, strict=False)
        bad = (~numbers.is_finite()).fill_null(True).arg_true()
        if not len(bad):
            exact = numbers.to_numpy()
            return (exact if (exact == np.floor(exact)).all() else np.round(exact * 1000)).astype(np.int64)
        if values.dtype == pl.String and _milliseconds(values[0]) is not None:
            return self._dates(values)
        raise self.fault(bad[0], f"the time {values[bad[0]]!r} is not a number")

    def _dates(self, values: pl.Series) -> Ints:
        times = [_milliseconds(value) for value in values.to_list()]
        if None in times:
            row = times.index(None)
            raise self.fault(row, f"the time {values[row]!r} is not a date, as the first, {values[0]!r}, is")
        return np.array(times, dtype=np.int64)


def _whole_numbers(ids: pl.Series) -> pl.Series | None:
    """Ids as whole numbers from 0, in few bytes; None if one is not exactly the text of such a number."""
    if ids.dtype == pl.String and ids.str.contains(_DIGITS).all() and not ids.null_count():
        ids = ids.str.to_integer(strict=False)
    if not ids.dtype.is_integer() or ids.null_count() or (ids < 0).any():
        return None
    return ids.shrink_dtype()


def malformed(path: Path, line: int, problem: str, text: str) -> DataError:
    """The error for a bad line of a file."""
    short = text if len(text) <= 60 else text[:57] + "…"
    return DataError(
        f"{path}, line {line}: {problem}: {short!r}", "correct the line, or download the file again"
    )


def read_table(path: Path, separator: str, names: Sequence[str] | None = None, quoted: bool = False) -> Table:
    """Read a text file with one record per line, all with the same number of fields.

    `names` are the columns; None takes them from the file's first line. With `quoted`, a field in
    double quotes may contain the separator or a line break.
    """
    if names is None and (large := text_columns(path, separator)):
        columns, rows = large
        return Table(path, columns, range(2, rows + 2), None)
    texts = read_lines(path)
    lines: Ints = np.arange(1, len(texts) + 1, dtype=np.int64)
    if quoted and texts.str.contains('"', literal=True).any():
        fields, lines = _split_quoted(path, texts, separator)
        texts = texts.gather(lines.clip(max=len(texts)) - 1)  # csv also counts single returns
    else:
        fields = texts.str.split(separator)
    if names is None:
        names = [name.strip() for name in fields[0]]
        if len(set(names)) < len(names):
            raise malformed(path, 1, "a column's name appears twice", texts[0])
        texts, lines, fields = texts[1:], lines[1:], fields[1:]
        if not len(texts):
            raise DataError(f"{path} has a header but no rows", "check that it is the right file")
    wrong = (fields.list.len() != len(names)).arg_true()
    if len(wrong):
        row = wrong[0]
        problem = f"{len(names)} fields were expected ({', '.join(names)}), {len(fields[row])} found"
        raise malformed(path, int(lines[row]), problem, texts[row])
    return Table(path, {name: fields.list.get(i) for i, name in enumerate(names)}, lines, texts)


def _split_quoted(path: Path, texts: pl.Series, separator: str) -> tuple[pl.Series, Ints]:
    """The fields of every record, and the line where it starts."""
    # newline="" and the joined text, because the csv module must see line breaks inside quotes.
    source = io.StringIO("\n".join(texts.to_list()), newline="")
    reader = csv.reader(source, delimiter=separator, strict=True)
    fields: list[list[str]] = []
    lines: list[int] = []
    begin = 1
    try:
        for record in reader:
            fields.append(record)
            lines.append(begin)
            begin = reader.line_num + 1
    except csv.Error as error:
        raise malformed(path, begin, str(error), texts[min(begin, len(texts)) - 1]) from None
    return pl.Series(fields, dtype=pl.List(pl.String)), np.array(lines, dtype=np.int64)


def read_lines(path: Path, encoding: str = "utf-8") -> pl.Series:
    """A file's lines as an editor counts them, without empty lines at the end."""
    text = read_text(path, encoding).replace("\r\n", "\n").rstrip("\n")
    if not text.strip():
        raise DataError(f"{path} is empty", "download the file again")
    return pl.Series([text], dtype=pl.String).str.split("\n").explode()


def read_text(path: Path, encoding: str = "utf-8") -> str:
    """A file's text, without a byte order mark."""
    try:
        raw = path.read_bytes()
        return raw.decode(encoding).removeprefix("\ufeff")
    except OSError as error:
        raise DataError(
            f"cannot read {path}: {error.strerror}", "check the path and its permissions"
        ) from None
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        text = raw.split(b"\n")[line - 1].decode("latin-1")
        raise malformed(path, line, "not UTF-8 text (save the file as UTF-8)", text) from None


def _milliseconds(text: str | None) -> int | None:
    """Convert an ISO 8601 date or time to milliseconds since 1970; None if it is not one."""
    try:
        moment = datetime.fromisoformat((text or "").strip())
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(milliseconds=1)


SUFFIXES = (".parquet", ".csv")


def write_batches(path: Path, batches: Iterable[pl.DataFrame], schema: Mapping[str, Any]) -> None:
    """Write the batches to a .parquet or .csv file, which appears when it is complete."""
    from polars.io.plugins import register_io_source  # noqa: PLC0415 - only here

    if path.suffix not in SUFFIXES:
        raise DataError(f"cannot write {path.name!r}", f"give a name that ends in {' or '.join(SUFFIXES)}")

    def source(*_: Any) -> Iterator[pl.DataFrame]:
        yield from batches

    frame = register_io_source(source, schema=dict(schema))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing_file(path) as partial:
            (frame.sink_parquet if path.suffix == ".parquet" else frame.sink_csv)(partial)
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error}", "give another file name") from None
