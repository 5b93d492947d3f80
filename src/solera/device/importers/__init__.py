"""Importers of histories exported from other services, matched against the catalogue.

What has been found so far is held in little memory: objects would take ten times as much.
"""

from __future__ import annotations

import zipfile
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from solera.core.errors import ConfigError, DataError, closest
from solera.device.aliases import Aliases, matched
from solera.device.bundle import Item
from solera.device.catalogue import Catalogue, fits
from solera.device.choices import Choices
from solera.device.device import Device
from solera.device.history import Row
from solera.device.importers.entry import Entry, cleaned
from solera.device.importers.jellyfin import COLUMNS, is_database, read_jellyfin
from solera.device.importers.letterboxd import read_letterboxd, read_watchlist
from solera.device.importers.listenbrainz import read_listenbrainz
from solera.device.importers.source import BAD_ROW, LIKE_FROM, Source
from solera.device.importers.table import read_own_table

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


_FIRST = 1 << 16  # bytes that are looked at
_ZIP = b"PK\x03\x04"


def format_of(path: Path) -> str:
    """The format that `import_file` takes: what is nothing else is a CSV file."""
    try:
        with path.open("rb") as file:
            start = file.read(_FIRST)
        if is_database(path):
            return "jellyfin"
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}", "check the path") from None
    if start.startswith(_ZIP):
        return "listenbrainz" if _has_listens(path) else "letterboxd"
    if path.suffix.lower() in (".json", ".jsonl") or start.lstrip()[:1] in (b"{", b"["):
        return "listenbrainz"
    line = start.decode("utf-8-sig", "replace").split("\n", maxsplit=1)[0]
    if len(line.split("\t")) == COLUMNS:
        return "jellyfin"
    return "letterboxd" if "Letterboxd URI" in line else "csv"


def _has_listens(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.startswith("listens/") for name in archive.namelist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError):
        return False  # then the reader says what is wrong with it


__all__ = [
    "LIKE_FROM",
    "LISTED",
    "Report",
    "Unmatched",
    "as_json",
    "import_entries",
    "import_file",
    "near_of_year",
    "row_of",
]
_REMEMBERED = 4_096  # titles that are looked up once: a history has few, many times

READERS: dict[str, Callable[[Source, Mapping[str, str]], Iterator[Entry]]] = {
    "letterboxd": read_letterboxd,
    "listenbrainz": read_listenbrainz,
    "jellyfin": read_jellyfin,
    "csv": read_own_table,
}
LIST_READERS = READERS | {"letterboxd": read_watchlist}  # of films to choose from
_STEP = 1_000  # entries between two reports of progress


class Unmatched(NamedTuple):
    """A title that is not in the catalogue, how often it came, and the items that may have been meant."""

    title: str
    year: int | None
    times: int
    near: list[Item]


Accept = Callable[[list[Unmatched]], Mapping[Key, Item]]


class Report(NamedTuple):
    """Result of an import.

    `entries` were read, and `matched` of them are in the catalogue as so many `items`, `by_id` of them by an
    id and the others by title and year. Of those items, `added` were new and `repeated` came more than once
    in the file. `rated` entries have a rating or a heart, and
    `seen_only` are the items whose rating is below `like_from`. `accepted` are the titles that were matched
    with a near item. `unlisted` counts the entries whose titles are not in the catalogue and were too many to
    list, and `left_out` the rows that the reader did not take, by reason; `faults` describes the first bad
    rows. `used` counts the rows by file, and `unused` are files that were not read.
    """

    entries: int
    matched: int
    items: int
    added: int
    repeated: int
    rated: int
    seen_only: int
    accepted: dict[str, str]
    unmatched: list[Unmatched]
    unlisted: int
    left_out: dict[str, int]
    faults: list[str]
    used: dict[str, int]
    unused: list[str]
    like_from: float
    by_id: int

    @property
    def known(self) -> int:
        """Entries that the history had already."""
        return self.matched - self.added - self.repeated

    @property
    def unknown(self) -> int:
        """Entries that are not in the catalogue."""
        return self.entries - self.matched


def read_entries(
    format_: str, source: Source, options: Mapping[str, str], *, as_list: bool = False
) -> Iterator[Entry]:
    """The entries of a file one by one, their text safe to show. A file without any is an error."""
    readers = LIST_READERS if as_list else READERS
    if format_ not in readers:
        raise ConfigError(f"unknown format {format_!r}", closest(format_, list(READERS)))
    empty = True
    try:
        for entry in cleaned(source, readers[format_](source, options)):
            empty = False
            yield entry
    except OSError as error:
        said = error.strerror or error
        raise DataError(f"{source.path} cannot be read: {said}", "check the path") from None
    if empty:
        reasons = [f"{count:,} × {reason}" for reason, count in source.left_out.items() if reason != BAD_ROW]
        why = "; ".join([*source.faults, *reasons]) or "it is empty"
        raise DataError(
            f"{source.path} has no row that can be used: {why}",
            f"check that it is an export of {format_} and not empty"
            if format_ != "csv"
            else "check the file and --columns",
        )


def import_file(
    device: Device,
    format_: str,
    path: Path,
    options: Mapping[str, str],
    user: str,
    *,
    like_from: float | None = None,
    accept: Accept | None = None,
    as_list: bool = False,
    progress: Callable[[int], None] = lambda _: None,
) -> Report:
    """Import the entries that are in the catalogue, oldest first, in one transaction, without duplicates.

    With `as_list` they become items to choose from, and the history stays as it is. `progress` is told now
    and then how many entries have been read, for the last time before any is stored. If it raises, none is.

    `accept` is given the titles that are not in the catalogue and returns the items that some of them stand
    for. These are remembered for the user's later imports.
    """
    source = Source(path, like_from=like_from)
    entries = read_entries(format_, source, options, as_list=as_list)
    return import_entries(
        device, format_, source, entries, user, accept=accept, as_list=as_list, progress=progress
    )


def import_entries(
    device: Device,
    format_: str,
    source: Source,
    entries: Iterable[Entry],
    user: str,
    *,
    accept: Accept | None = None,
    as_list: bool = False,
    progress: Callable[[int], None] = lambda _: None,
) -> Report:
    """The same for entries that have been read, of a `format_` that the history names as their source."""
    catalogue = device.catalogue
    match = lru_cache(maxsize=_REMEMBERED)(_matcher(device, user))
    found, by_id = Found(), 0
    for entry in entries:
        row = row_of(catalogue, match, entry)
        by_id += row is not None and (
            entry.item in catalogue.number or catalogue.by_ids(entry.ids) is not None
        )
        found.add(row, entry)
        if found.entries % _STEP == 0:
            progress(found.entries)
    unmatched = _unmatched(catalogue, found)
    accepted = accept(unmatched) if accept else {}
    with device.store.writing():
        progress(found.entries)
        for (title, year), item in accepted.items():
            Aliases(device.store, user).add(title, year, item.id)
            found.accept((title, year), catalogue.number[item.id])
        if as_list:
            items = dict.fromkeys(catalogue.items[row].id for row in found.rows)
            added = Choices(device.store, user).add_listed(items, format_)
        else:
            added = device.add_all(found.ordered(catalogue), user, format_)
    return Report(
        entries=found.entries,
        matched=len(found.rows),
        by_id=by_id,
        items=len(set(found.rows)),
        added=added,
        repeated=len(found.rows) - len(set(found.rows)) if as_list else found.repeated(),
        rated=found.rated,
        seen_only=found.seen_only(),
        accepted={title: item.title for (title, _), item in accepted.items()},
        unmatched=[each for each in unmatched if (each.title, each.year) not in accepted],
        unlisted=found.unlisted,
        left_out=dict(source.left_out),
        faults=source.faults,
        used=source.used,
        unused=source.unused,
        like_from=source.like_from,
    )


def near_of_year(unmatched: list[Unmatched]) -> dict[Key, Item]:
    """The nearest item of every title that has a year, if the item's year is known and fits."""
    chosen = {}
    for title, year, _, near in unmatched:
        item = next((each for each in near if year and each.year and fits(each, year)), None)
        if item:
            chosen[title, year] = item
    return chosen


def _matcher(device: Device, user: str) -> Callable[[str, int | None], Item | None]:
    catalogue, aliases = device.catalogue, Aliases(device.store, user).by_key()

    def match(title: str, year: int | None) -> Item | None:
        row = catalogue.number.get(matched(aliases, title, year) or "")
        return catalogue.match(title, year) if row is None else catalogue.items[row]

    return match


def row_of(catalogue: Catalogue, match: Callable[[str, int | None], Item | None], entry: Entry) -> int | None:
    """The row of an entry's item in the catalogue."""
    number = catalogue.number
    if entry.item in number:
        return number[entry.item]
    if (same := catalogue.by_ids(entry.ids)) is not None:
        return number[same.id]
    if entry.title in (entry.item, *entry.ids.values()):  # an id alone: a film may be called 1984 as well
        return None
    found = (match(title, entry.year) for title in (entry.title, *entry.others) if title)
    return next((number[item.id] for item in found if item), None)


def _unmatched(catalogue: Catalogue, found: Found) -> list[Unmatched]:
    """The titles that are not in the catalogue, with near ones as long as comparing them is quick."""
    compared, listed = 0, []
    for (title, year), times in found.missed.items():
        compared += len(catalogue.rivals(title, year)) if compared < COMPARED else 0
        near = catalogue.near(title, year) if compared <= COMPARED else []
        listed.append(Unmatched(title, year, times, near))
    return listed


def as_json(report: Report) -> dict[str, Any]:
    """The report for programs."""
    unmatched = [
        each._asdict() | {"near": [{"item": item.id, "title": item.title} for item in each.near]}
        for each in report.unmatched
    ]
    return report._asdict() | {"known": report.known, "unknown": report.unknown, "unmatched": unmatched}
