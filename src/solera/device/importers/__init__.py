"""What people have: histories exported elsewhere, each format one file, matched against the catalogue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from solera.core.errors import ConfigError, DataError, closest
from solera.device.catalogue import Catalogue
from solera.device.device import Device
from solera.device.importers.entry import Entry
from solera.device.importers.jellyfin import read_jellyfin
from solera.device.importers.letterboxd import read_letterboxd
from solera.device.importers.listenbrainz import read_listenbrainz
from solera.device.importers.table import read_own_table

NEAR_MISSES = 20  # unmatched titles that are held against the whole catalogue

READERS: dict[str, Callable[[Path, Mapping[str, str]], list[Entry]]] = {
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
    """What became of a file."""

    entries: int
    matched: int
    items: int
    added: int
    unmatched: list[Unmatched]


def import_file(device: Device, format_: str, path: Path, options: Mapping[str, str], user: str) -> Report:
    """Add what the catalogue knows of a file, oldest first, in one step; nothing is added twice."""
    if format_ not in READERS:
        raise ConfigError(f"unknown format {format_!r}", closest(format_, list(READERS)))
    try:
        entries = READERS[format_](path, options)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}", "check the path") from None
    except UnicodeDecodeError:
        raise DataError(f"{path} is not text in UTF-8", "give the file as it was exported") from None
    entries.sort(key=lambda entry: (entry.time is not None, entry.time or 0))
    catalogue = device.catalogue
    rows: list[tuple[str, int | None]] = []
    missed: dict[tuple[str, int | None], int] = {}
    for entry in entries:
        item = _match(catalogue, entry)
        if item is None:
            missed[entry.title, entry.year] = missed.get((entry.title, entry.year), 0) + 1
        else:
            rows.append((item, entry.time))
    added = device.add_all(rows, user, format_)
    unmatched = [
        Unmatched(title, year, times, catalogue.near(title) if place < NEAR_MISSES else [])
        for place, ((title, year), times) in enumerate(missed.items())
    ]
    return Report(len(entries), len(rows), len({item for item, _ in rows}), added, unmatched)


def _match(catalogue: Catalogue, entry: Entry) -> str | None:
    if entry.item in catalogue.number:
        return entry.item
    if entry.title == entry.item:  # an id alone: a film may be called 1984 as well
        return None
    found = (catalogue.match(title, entry.year) for title in (entry.title, *entry.others) if title)
    return next((item.id for item in found if item), None)


def as_json(report: Report) -> dict[str, Any]:
    """The report for programs."""
    return report._asdict() | {"unmatched": [each._asdict() for each in report.unmatched]}
