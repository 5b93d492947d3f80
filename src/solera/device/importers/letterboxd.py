"""Letterboxd: Settings → Data → Export your data. Of the zip, `watched.csv`, `diary.csv` or `ratings.csv`.

watched.csv   Date,Name,Year,Letterboxd URI
ratings.csv   Date,Name,Year,Letterboxd URI,Rating
diary.csv     Date,Name,Year,Letterboxd URI,Rating,Rewatch,Tags,Watched Date

`Date` is when a film was logged; the diary's `Watched Date` is when it was seen, and counts where given.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from solera.core.errors import DataError
from solera.device.importers.entry import Entry, malformed, only, read_csv, seconds, whole


def read_letterboxd(path: Path, options: Mapping[str, str]) -> list[Entry]:
    """One entry per film and date."""
    only(options, (), "letterboxd")
    if path.stem.startswith("watchlist"):
        hint = "give watched.csv, diary.csv or ratings.csv of the same export"
        raise DataError(f"{path} lists films yet to be seen", hint)
    entries = []
    for line, row in read_csv(path):
        if not {"Date", "Name", "Year"} <= row.keys():
            raise malformed(path, 1, "not the header Date,Name,Year,… of a Letterboxd export")
        if not row["Name"]:
            raise malformed(path, line, "the film has no name")
        try:
            time = seconds(row.get("Watched Date") or row["Date"])
            entries.append(Entry(row["Name"], whole(row["Year"]), time))
        except ValueError as error:
            raise malformed(path, line, str(error)) from None
    return entries
