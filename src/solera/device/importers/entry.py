"""One line of a history from elsewhere, and what the readers have in common."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from solera.core.errors import ConfigError, closest
from solera.core.text import clean_text
from solera.device.importers.source import Source

_LONGEST_TIME, _LONGEST_NUMBER = 40, 18  # characters
_HIGHEST = 100  # rating of any scale


class Entry(NamedTuple):
    """What was met and when, in Unix seconds; `others` are names to try after the title.

    `liked` is None where nothing says whether it was.
    """

    title: str
    year: int | None = None
    time: int | None = None
    item: str | None = None
    others: tuple[str, ...] = ()
    liked: bool | None = None
    ids: Mapping[str, str] = {}  # elsewhere, by kind


def cleaned(source: Source, entries: Iterator[Entry]) -> Iterator[Entry]:
    """The entries with text that is safe to keep and to show; those without a usable name are left out."""
    most = source.budget.name
    for title, year, time, item, others, liking, ids in entries:
        if len(title) > most or any(len(id_) > most for id_ in (item or "", *ids.values())):
            source.left_out[f"the name has more than {most} characters"] += 1
        elif not (name := clean_text(title)).strip():
            source.left_out["there is no name"] += 1
        else:
            id_ = None if item is None else clean_text(item)
            more = tuple(clean_text(o) for o in others if len(o) <= most)
            yield Entry(name, year, time, id_, more, liking, ids)


def only(options: Mapping[str, str], known: tuple[str, ...], format_: str) -> None:
    """Refuse options that a format does not have."""
    for name in options:
        if name not in known:
            hint = closest(name, list(known)) if known else "leave it out"
            raise ConfigError(f"format {format_!r} has no option {name!r}", hint)


def seconds(text: str) -> int | None:
    """Unix seconds of a date, a date with time (UTC where no zone is given) or a number; None if empty."""
    text = text.strip()
    if not text:
        return None
    if len(text) > _LONGEST_TIME:
        raise ValueError(f"a time of {len(text):,} characters; at most {_LONGEST_TIME} are allowed")
    if text.lstrip("-").replace(".", "", 1).isdigit():
        return moment(float(text))
    when = datetime.fromisoformat(text)
    return moment((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp())


def moment(time: float) -> int:
    """Unix seconds that a calendar can have."""
    if not abs(time) < 1e13:
        raise ValueError("not a valid calendar date")
    return int(time)


def whole(text: str) -> int:
    """A whole number."""
    if len(text) > _LONGEST_NUMBER:
        raise ValueError(f"a number of {len(text):,} characters; at most {_LONGEST_NUMBER} are allowed")
    return int(text)


def year_of(text: str) -> int | None:
    """A year; None if empty."""
    text = text.strip()
    if not text:
        return None
    year = whole(text)
    if not 0 < year < 10_000:
        raise ValueError(f"{year} is not a valid year")
    return year


def rating_of(text: str) -> float | None:
    """A rating; None if empty."""
    text = text.strip()
    if not text:
        return None
    rating = float(text) if len(text) <= _LONGEST_NUMBER else math.nan
    if not 0 <= rating <= _HIGHEST:
        raise ValueError(f"{text[:20]!r} is not a rating from 0 to {_HIGHEST}")
    return rating


def liked(rating: float | None, least: float) -> bool | None:
    """Whether a rating is high enough to count as a like; None if there is no rating."""
    return None if rating is None else rating >= least
