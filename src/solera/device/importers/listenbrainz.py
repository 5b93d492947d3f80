"""ListenBrainz: Settings → Export. The zip as it comes, one of its `listens/YEAR/MONTH.jsonl`, or a list.

A listen is {"listened_at": seconds, "track_metadata": {"artist_name": …, "mbid_mapping": {"artists":
[{"artist_credit_name": …, "artist_mbid": …}, …]}}}. The catalogue's items are artists: the id of the only
artist is looked for first, then the name as it was submitted, then those of the artists that MusicBrainz
knows the recording by. Of a long list, no more than one entry is held.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TextIO

from solera.core.errors import DataError
from solera.device.importers.entry import Entry, moment, only
from solera.device.importers.source import Source

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")


def values_of_lines(source: Source, text: TextIO, within: str = "") -> Iterator[tuple[str, Any]]:
    """Where each value is, and the value; empty lines have none."""
    for where, line in source.lines(text, within):
        stripped = line.strip()
        if stripped:
            value, end = _value(source, where, stripped, 0)
            if end < len(stripped):
                raise source.malformed(where, "not JSON")
            yield where, value


def values_of_list(source: Source, text: TextIO) -> Iterator[tuple[str, Any]]:
    """Where each entry of a list is, and the entry."""
    window, number = _Window(source, text), 0
    if window.take() != "[":
        raise window.no_list()
    mark = window.take() if window.ahead() == "]" else ","
    while mark == ",":
        number += 1
        source.count_row()
        where = f"entry {number}"
        window.ahead()
        value, end = _value(source, where, window.held, window.at)
        if end - window.at > source.budget.line:
            raise source.too_long(where)
        window.at = end
        yield where, value
        mark = window.take()
    if mark != "]" or window.ahead():
        raise window.no_list()


class _Window:
    """The part of a long text in which the next entry is."""

    def __init__(self, source: Source, text: TextIO) -> None:
        self._source, self._text = source, text
        self.held, self.at = "", 0
        self._ended = False

    def ahead(self) -> str:
        """The next character that is no space, "" at the end; a whole entry after it is held."""
        most = self._source.budget.line
        while True:
            space = _SPACE.match(self.held, self.at)
            self.at = space.end() if space else self.at
            if self._ended or len(self.held) - self.at > most:
                return self.held[self.at : self.at + 1]
            more = self._source.decoded(lambda: self._text.read(most))
            self.held, self.at, self._ended = self.held[self.at :] + more, 0, not more

    def take(self) -> str:
        """The same, and go on after it."""
        character = self.ahead()
        self.at += 1
        return character

    def no_list(self) -> DataError:
        """An error about the list itself."""
        return DataError(f"{self._source.path} is not a JSON list of listens", "export it again")


def _value(source: Source, where: str, text: str, start: int) -> tuple[Any, int]:
    """The value that begins at a place, and where it ends."""
    try:
        value, end = _DECODER.raw_decode(text, start)
    except RecursionError:
        raise _too_deep(source, where) from None
    except ValueError:
        most = source.budget.line
        cut = f", or more than {most:,} characters, the most that are read"
        raise source.malformed(where, "not JSON" + (cut if len(text) - start > most else "")) from None
    most = source.budget.depth
    # Only a value with many brackets can be deep, and hardly any listen has so many.
    if text.count("[", start, end) + text.count("{", start, end) > most and _is_deeper(value, most):
        raise _too_deep(source, where)
    return value, end


def _is_deeper(value: Any, depth: int) -> bool:
    level = [value]
    for _ in range(depth):
        level = [inner for each in level for inner in _inner(each)]
    return any(isinstance(each, list | dict) for each in level)


def _inner(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _too_deep(source: Source, where: str) -> DataError:
    return source.malformed(where, f"nested more than {source.budget.depth} deep, the most that is read")


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
