"""Any CSV or TSV file with a header, whose columns are named: item or title, year, time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from solera.core.errors import ConfigError, DataError, closest
from solera.device.importers.csv_text import read_csv
from solera.device.importers.entry import Entry, only, seconds, year_of
from solera.device.importers.source import Source

_KINDS = ("item", "title", "year", "time")


def read_own_table(source: Source, options: Mapping[str, str]) -> Iterator[Entry]:
    """One entry per row."""
    only(options, _KINDS, "csv")
    if not {"item", "title"} & options.keys():
        raise ConfigError(
            "the column of the item is not known", "give --columns title=…,year=…,time=… or item=…,time=…"
        )
    with read_csv(source, "\t" if source.path.suffix == ".tsv" else ",") as table:
        known = set(table.header)
        for name in options.values():
            if name not in known:
                raise DataError(f"{source.path} has no column {name!r}", closest(name, table.shown()))
        for where, row in table.rows:
            field = {kind: row.get(name, "").strip() for kind, name in options.items()}
            item = field.get("item") or None
            title = field.get("title") or item
            if title is None:
                raise source.malformed(where, "neither an item nor a title")
            try:
                year, time = year_of(field.get("year", "")), seconds(field.get("time", ""))
            except ValueError as error:
                raise source.malformed(where, str(error)) from None
            yield Entry(title, year, time, item)
