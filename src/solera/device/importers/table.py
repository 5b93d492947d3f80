"""Any CSV or TSV file with a header, whose columns are named: item or title, year, time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from solera.core.errors import ConfigError, DataError, closest
from solera.device.importers.entry import Entry, malformed, only, read_csv, seconds, whole

_KINDS = ("item", "title", "year", "time")


def read_own_table(path: Path, options: Mapping[str, str]) -> list[Entry]:
    """One entry per row."""
    only(options, _KINDS, "csv")
    if not {"item", "title"} & options.keys():
        raise ConfigError("which column names the item?", "--columns title=…,year=…,time=… or item=…,time=…")
    entries = []
    for line, row in read_csv(path, "\t" if path.suffix == ".tsv" else ","):
        for name in options.values():
            if name not in row:
                raise DataError(f"{path} has no column {name!r}", closest(name, list(row)))
        field = {kind: row[name].strip() for kind, name in options.items()}
        item = field.get("item") or None
        title = field.get("title") or item
        if title is None:
            raise malformed(path, line, "neither an item nor a title")
        try:
            year, time = whole(field.get("year", "")), seconds(field.get("time", ""))
        except ValueError as error:
            raise malformed(path, line, str(error)) from None
        entries.append(Entry(title, year, time, item))
    return entries
