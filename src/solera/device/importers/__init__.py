"""Importers of histories exported from other services, matched against the catalogue."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from solera.core.errors import ConfigError, DataError, closest
from solera.device.bundle import Item
from solera.device.catalogue import Catalogue
from solera.device.device import Device
from solera.device.importers.entry import Entry, cleaned
from solera.device.importers.jellyfin import read_jellyfin
from solera.device.importers.letterboxd import read_letterboxd
from solera.device.importers.listenbrainz import read_listenbrainz
from solera.device.importers.source import Source
from solera.device.importers.table import read_own_table

NEAR_MISSES = 20  # unmatched titles that are held against the whole catalogue
LISTED = 10_000  # unmatched titles that are kept for the report
_REMEMBERED = 4_096  # titles that are looked up once: a history has few, many times
_UNKNOWN = np.iinfo(np.int64).min  # a time: before all others

READERS: dict[str, Callable[[Source, Mapping[str, str]], Iterator[Entry]]] = {
    "letterboxd": read_letterboxd,
    "listenbrainz": read_listenbrainz,
    "jellyfin": read_jellyfin,
    "csv": read_own_table,
}


class Unmatched(NamedTuple):
    """A title that is not in the catalogue, how often it came, and what may have been meant."""

    title: str
    year: int | None
    times: int
    near: list[str]


class Report(NamedTuple):
    """Result of an import.

    `unlisted` counts the entries whose titles are not in the catalogue and were too many to list, and
    `left_out` those that the reader did not take, by reason.
    """

    entries: int
    matched: int
    items: int
    added: int
    unmatched: list[Unmatched]
    unlisted: int
    left_out: dict[str, int]


def read_entries(format_: str, source: Source, options: Mapping[str, str]) -> Iterator[Entry]:
    """The entries of a file one by one, their text safe to show."""
    if format_ not in READERS:
        raise ConfigError(f"unknown format {format_!r}", closest(format_, list(READERS)))
    try:
        yield from cleaned(source, READERS[format_](source, options))
    except OSError as error:
        said = error.strerror or error
        raise DataError(f"{source.path} cannot be read: {said}", "check the path") from None


def import_file(device: Device, format_: str, path: Path, options: Mapping[str, str], user: str) -> Report:
    """Import the entries that are in the catalogue, oldest first, in one transaction, without duplicates."""
    source, catalogue = Source(path), device.catalogue
    match = lru_cache(maxsize=_REMEMBERED)(catalogue.match)
    rows, times = array("q"), array("q")  # of what was found: objects would take ten times the memory
    missed: dict[tuple[str, int | None], int] = {}
    entries = unlisted = 0
    for entry in read_entries(format_, source, options):
        entries += 1
        row = _row(catalogue, match, entry)
        key = entry.title, entry.year
        if row is not None:
            rows.append(row)
            times.append(_UNKNOWN if entry.time is None else entry.time)
        elif key in missed or len(missed) < LISTED:
            missed[key] = missed.get(key, 0) + 1
        else:
            unlisted += 1
    order = np.argsort(np.array(times), kind="stable")
    found = ((catalogue.items[rows[at]].id, None if times[at] == _UNKNOWN else times[at]) for at in order)
    added = device.add_all(found, user, format_)
    unmatched = [
        Unmatched(title, year, count, catalogue.near(title) if place < NEAR_MISSES else [])
        for place, ((title, year), count) in enumerate(missed.items())
    ]
    return Report(entries, len(rows), len(set(rows)), added, unmatched, unlisted, dict(source.left_out))


def _row(catalogue: Catalogue, match: Callable[[str, int | None], Item | None], entry: Entry) -> int | None:
    """The row of an entry's item in the catalogue."""
    number = catalogue.number
    if entry.item in number:
        return number[entry.item]
    if entry.title == entry.item:  # an id alone: a film may be called 1984 as well
        return None
    found = (match(title, entry.year) for title in (entry.title, *entry.others) if title)
    return next((number[item.id] for item in found if item), None)


def as_json(report: Report) -> dict[str, Any]:
    """The report for programs."""
    return report._asdict() | {"unmatched": [each._asdict() for each in report.unmatched]}
