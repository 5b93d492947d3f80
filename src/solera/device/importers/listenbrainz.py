"""ListenBrainz: Settings → Export. The zip as it comes, one of its `listens/YEAR/MONTH.jsonl`, or a list.

A listen is {"listened_at": seconds, "track_metadata": {"artist_name": …, "mbid_mapping": {"artists":
[{"artist_credit_name": …}, …]}}}. The catalogue's items are artists: the name as it was submitted is
looked for first, then those of the artists that MusicBrainz knows the recording by.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from solera.core.errors import DataError
from solera.device.importers.entry import Entry, malformed, moment, only


def read_listenbrainz(path: Path, options: Mapping[str, str]) -> list[Entry]:
    """One entry per listen."""
    only(options, (), "listenbrainz")
    entries = []
    for line, listen in _listens(path):
        try:
            track = listen["track_metadata"]
            mapped = (track.get("mbid_mapping") or {}).get("artists") or []
            others = tuple(str(artist["artist_credit_name"]) for artist in mapped)
            entries.append(
                Entry(str(track["artist_name"]), None, moment(int(listen["listened_at"])), None, others)
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            raise malformed(path, line, "not a listen with listened_at and artist_name") from None
    return entries


def _listens(path: Path) -> Iterator[tuple[int, Any]]:
    if path.suffix == ".zip":
        try:
            with zipfile.ZipFile(path) as archive:
                for name in archive.namelist():
                    if name.startswith("listens/") and name.endswith(".jsonl"):
                        with archive.open(name) as file:
                            yield from _lines(path, (line.decode("utf-8") for line in file))
        except zipfile.BadZipFile:
            raise DataError(f"{path} is not a zip, or not all of one", "export it again") from None
        return
    with path.open(encoding="utf-8") as file:
        if path.suffix == ".json":
            try:
                yield from enumerate(json.load(file), start=1)
            except (ValueError, TypeError):
                raise DataError(f"{path} is not a JSON list of listens", "export it again") from None
        else:
            yield from _lines(path, iter(file))


def _lines(path: Path, lines: Iterator[str]) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except ValueError:
                raise malformed(path, number, "not JSON") from None
