"""ListenBrainz: Settings → Export. The zip as it comes, one of its `listens/YEAR/MONTH.jsonl`, or a list.

A listen is {"listened_at": seconds, "track_metadata": {"artist_name": …, "mbid_mapping": {"artists":
[{"artist_credit_name": …, "artist_mbid": …}, …]}}}. The catalogue's items are artists: the id of the only
artist is looked for first, then the name as it was submitted, then those of the artists that MusicBrainz
knows the recording by.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from solera.device.importers.entry import Entry, moment, only
from solera.device.importers.json_text import values_of_lines, values_of_list
from solera.device.importers.source import Source

_ARTISTS = 20  # of one recording that are looked for


def read_listenbrainz(source: Source, options: Mapping[str, str]) -> Iterator[Entry]:
    """One entry per listen."""
    only(options, (), "listenbrainz")
    for where, listen in _listens(source):
        try:
            track = listen["track_metadata"]
            mapped = (track.get("mbid_mapping") or {}).get("artists") or []
            others = tuple(str(artist["artist_credit_name"]) for artist in mapped[:_ARTISTS])
            artist, time = str(track["artist_name"]), moment(int(listen["listened_at"]))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            source.bad(where, "not a listen with listened_at and artist_name")
            continue
        one = mapped[0].get("artist_mbid") if len(mapped) == 1 else None
        yield Entry(artist, None, time, None, others, ids={"musicbrainz": str(one)} if one else {})


def _listens(source: Source) -> Iterator[tuple[str, Any]]:
    if source.path.suffix == ".zip":
        for name, text in source.unpacked(_has_listens):
            yield from values_of_lines(source, text, name)
        return
    with source.text() as text:
        yield from (values_of_list if source.path.suffix == ".json" else values_of_lines)(source, text)


def _has_listens(name: str) -> bool:
    return name.startswith("listens/") and name.endswith(".jsonl")
