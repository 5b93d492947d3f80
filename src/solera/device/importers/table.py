"""Any CSV or TSV file with a header, whose columns are named: item or title, year, time, rating, counts.

An item may have ids elsewhere too, such as tmdb.

`counts` is yes or no: what an exported history says of every entry. From an exported history, which is known
by its header, the quotes are removed that keep spreadsheets from reading formulas.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, TextIO

from solera.core.errors import ConfigError, DataError, closest
from solera.core.text import clean_text
from solera.device.bundle import ID_KINDS
from solera.device.history import COLUMNS, unquoted
from solera.device.importers.entry import Entry, liked, only, rating_of, seconds, year_of
from solera.device.importers.source import Source


class Table(NamedTuple):
    """The names of the columns; then where each row is, and its fields by column."""

    header: list[str]
    rows: Iterator[tuple[str, dict[str, str]]]

    def shown(self) -> list[str]:
        """The columns for a person to choose from."""
        return [clean_text(name)[:50] for name in self.header[:50]]


@contextmanager
def read_csv(source: Source, separator: str = ",") -> Iterator[Table]:
    """The table in a file. A row that is shorter than the header lacks its last columns."""
    with source.text() as text:
        yield table_of(source, text, separator)


def table_of(source: Source, text: TextIO, separator: str = ",", within: str = "") -> Table:
    """The table in a text; `within` names the entry of a zip."""
    held, where = 0, "line 1"

    def lines() -> Iterator[str]:
        nonlocal held, where
        for where, line in source.lines(text, within):
            held += len(line)
            if held > source.budget.line:  # quoted fields may go on over any number of lines
                raise source.too_long(where)
            yield line

    def records() -> Iterator[list[str]]:
        nonlocal held
        try:
            for fields in csv.reader(lines(), delimiter=separator):
                held = 0
                if fields:
                    yield fields
        except csv.Error as error:
            raise source.malformed(where, str(error)) from None

    found = records()
    header = next(found, [])
    return Table(header, ((where, dict(zip(header, fields, strict=False))) for fields in found))


_KINDS = ("item", "title", "year", "time", "rating", "counts", *ID_KINDS)
_COUNTS = {"yes": True, "no": False, "": None}
_STARS = 5


def read_own_table(source: Source, options: Mapping[str, str]) -> Iterator[Entry]:
    """One entry per row."""
    only(options, _KINDS, "csv")
    if not {"item", "title", *ID_KINDS} & options.keys():
        raise ConfigError(
            "the column of the item is not known", "give --columns title=…,year=…,time=… or item=…,time=…"
        )
    with read_csv(source, "\t" if source.path.suffix == ".tsv" else ",") as table:
        known = set(table.header)
        read = unquoted if table.header == list(COLUMNS) else str
        for name in options.values():
            if name not in known:
                raise DataError(f"{source.path} has no column {name!r}", closest(name, table.shown()))
        for where, row in table.rows:
            field = {kind: read(row.get(name, "")).strip() for kind, name in options.items()}
            item = field.get("item") or None
            ids = {kind: field[kind] for kind in ID_KINDS if field.get(kind)}
            title = field.get("title") or item or next(iter(ids.values()), None)
            if title is None:
                source.bad(where, "neither an item nor a title")
                continue
            try:
                year, time = year_of(field.get("year", "")), seconds(field.get("time", ""))
                rating, counts = rating_of(field.get("rating", "")), _COUNTS[field.get("counts", "").lower()]
            except KeyError:
                source.bad(where, f"{field['counts'][:20]!r} is neither yes nor no")
                continue
            except ValueError as error:
                source.bad(where, str(error))
                continue
            if source.of_five and rating is not None and rating > _STARS:
                raise DataError(
                    f"{source.path}, {where}: the rating {rating:g} is not one of {_STARS} stars",
                    "give --like-from on the file's own scale, for example --like-from 7",
                )
            opinion = liked(rating, source.like_from) if counts is None else counts
            yield Entry(title, year, time, item, liked=opinion, ids=ids)
