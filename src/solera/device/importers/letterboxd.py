"""Letterboxd: Settings → Data → Export your data. Of the zip, `watched.csv`, `diary.csv` or `ratings.csv`.

watched.csv   Date,Name,Year,Letterboxd URI
ratings.csv   Date,Name,Year,Letterboxd URI,Rating
diary.csv     Date,Name,Year,Letterboxd URI,Rating,Rewatch,Tags,Watched Date

`Date` is when a film was logged; the diary's `Watched Date` is when it was seen, and counts where given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from solera.core.errors import DataError
from solera.device.importers.csv_text import read_csv
from solera.device.importers.entry import Entry, only, seconds, year_of
from solera.device.importers.source import Source


def read_letterboxd(source: Source, options: Mapping[str, str]) -> Iterator[Entry]:
    """One entry per film and date."""
    only(options, (), "letterboxd")
    if source.path.stem.startswith("watchlist"):
        hint = "give watched.csv, diary.csv or ratings.csv of the same export"
        raise DataError(f"{source.path} is a watchlist of films not watched yet", hint)
    with read_csv(source) as table:
        if not {"Date", "Name", "Year"} <= set(table.header):
            raise source.malformed("line 1", "not the header Date,Name,Year,… of a Letterboxd export")
        for where, row in table.rows:
            name = row.get("Name", "")
            if not name:
                raise source.malformed(where, "the film has no name")
            try:
                seen = row.get("Watched Date") or row.get("Date", "")
                year, time = year_of(row.get("Year", "")), seconds(seen)
            except ValueError as error:
                raise source.malformed(where, str(error)) from None
            yield Entry(name, year, time)
