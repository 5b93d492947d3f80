"""What an import has found so far, in little memory: objects would take ten times as much."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import numpy as np

from solera.device.catalogue import Catalogue
from solera.device.history import Row
from solera.device.importers.entry import Entry

LISTED = 10_000  # titles that are not in the catalogue and are kept for the report
COMPARED = 200_000  # pairs of titles that are compared to suggest near ones
_UNKNOWN = np.iinfo(np.int64).min  # a time: before all others
_UNSAID = -1

Key = tuple[str, int | None]


class Found:
    """Rows of the catalogue with times and opinions, and the titles that are not in the catalogue."""

    def __init__(self) -> None:
        self.entries = self.unlisted = self.rated = 0
        self.rows, self.times, self.liked = array("q"), array("q"), array("b")
        self.missed: dict[Key, int] = {}  # how often each title came
        self._places: dict[Key, int] = {}
        self._missed = array("q"), array("q"), array("b")  # places of titles, times, opinions

    def add(self, row: int | None, entry: Entry) -> None:
        """Add an entry that has a row in the catalogue, or none."""
        self.entries += 1
        self.rated += entry.liked is not None
        time = _UNKNOWN if entry.time is None else entry.time
        opinion = _UNSAID if entry.liked is None else int(entry.liked)
        key = entry.title, entry.year
        if row is not None:
            self._append(row, time, opinion)
        elif key in self.missed or len(self.missed) < LISTED:
            self.missed[key] = self.missed.get(key, 0) + 1
            place = self._places.setdefault(key, len(self._places))
            for column, value in zip(self._missed, (place, time, opinion), strict=True):
                column.append(value)
        else:
            self.unlisted += 1

    def accept(self, key: Key, row: int) -> None:
        """Take the entries of a title as those of a row."""
        del self.missed[key]
        places, times, opinions = self._missed
        for at in np.flatnonzero(np.array(places) == self._places[key]).tolist():
            self._append(row, times[at], opinions[at])

    def _append(self, row: int, time: int, opinion: int) -> None:
        self.rows.append(row)
        self.times.append(time)
        self.liked.append(opinion)

    def repeated(self) -> int:
        """How many entries are of an item and time that came before."""
        rows, times = np.array(self.rows), np.array(self.times)
        order = np.lexsort((times, rows))
        rows, times = rows[order], times[order]
        return int(((rows[1:] == rows[:-1]) & (times[1:] == times[:-1])).sum())

    def seen_only(self) -> int:
        """How many items have an entry that says that they were not liked."""
        return len(np.unique(np.array(self.rows)[np.array(self.liked) == 0]))

    def ordered(self, catalogue: Catalogue) -> Iterator[Row]:
        """The entries by time, oldest first."""
        for at in np.argsort(np.array(self.times), kind="stable").tolist():
            time, opinion = self.times[at], self.liked[at]
            item = catalogue.items[self.rows[at]].id
            yield item, None if time == _UNKNOWN else time, None if opinion == _UNSAID else bool(opinion)
