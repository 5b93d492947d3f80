"""When a served federation trains: an interval or a cron expression, and quiet hours. All times are UTC."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta

from solera.core.errors import ConfigError

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day", 1, 31), ("month", 1, 12), ("weekday", 0, 7))
_FAR = timedelta(days=366 * 8)  # 29 February comes at least every eight years
_HINT = "minute hour day month weekday, for example '30 2 * * *' (02:30 UTC every night)"


def parse_duration(text: str) -> timedelta:
    """A duration such as 90s, 30m, 6h or 1d."""
    found = re.fullmatch(r"(\d+)\s*([smhd])", text.strip())
    if not found or int(found[1]) == 0:
        raise ConfigError(f"{text!r} is not a duration", "for example 90s, 30m, 6h or 1d")
    return timedelta(seconds=int(found[1]) * _UNITS[found[2]])


@dataclass(frozen=True)
class Cron:
    """A cron expression with five fields: numbers, lists, ranges, steps and `*`."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]  # 0 is Sunday
    any_day: bool  # cron's rule: if both day and weekday are given, either is enough
    any_weekday: bool

    @classmethod
    def parse(cls, text: str) -> Cron:
        """Read an expression. A problem names the field."""
        parts = text.split()
        if len(parts) != len(_FIELDS):
            raise ConfigError(f"the cron expression {text!r} has {len(parts)} fields, not 5", _HINT)
        minutes, hours, days, months, weekdays = (
            _values(part, *field) for part, field in zip(parts, _FIELDS, strict=True)
        )
        made = cls(
            minutes,
            hours,
            days,
            months,
            weekdays=frozenset(day % 7 for day in weekdays),
            any_day=parts[2].startswith("*"),
            any_weekday=parts[4].startswith("*"),
        )
        made.next_after(datetime(2024, 1, 1, tzinfo=UTC))  # 31 February never comes
        return made

    def next_after(self, moment: datetime) -> datetime:
        """The first minute after a moment that the expression matches."""
        at = moment.replace(second=0, microsecond=0) + timedelta(minutes=1)
        end = at + _FAR
        while at < end:
            if at.month not in self.months or not self._is_day(at):
                at = at.replace(hour=0, minute=0) + timedelta(days=1)
            elif at.hour not in self.hours:
                at = at.replace(minute=0) + timedelta(hours=1)
            elif at.minute not in self.minutes:
                at += timedelta(minutes=1)
            else:
                return at
        raise ConfigError("the cron expression names a day that never comes", _HINT)

    def _is_day(self, at: datetime) -> bool:
        day, weekday = at.day in self.days, at.isoweekday() % 7 in self.weekdays
        return day and weekday if self.any_day or self.any_weekday else day or weekday


def _values(text: str, name: str, low: int, high: int) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"(\*|(\d+)(?:-(\d+))?)(?:/(\d+))?", part)
        if not match or match[4] == "0":
            raise ConfigError(f"{part!r} is not a {name} of a cron expression", _HINT)
        first = low if match[2] is None else int(match[2])
        alone = first if match[2] is not None and match[4] is None else high
        last = int(match[3] or alone)
        if not low <= first <= last <= high:
            raise ConfigError(f"the {name} {part!r} is not within {low} and {high}", _HINT)
        found.update(range(first, last + 1, int(match[4] or 1)))
    return frozenset(found)


@dataclass(frozen=True)
class Quiet:
    """Hours of every day in which nothing starts: from `begin` until just before `end`."""

    begin: time
    end: time

    @classmethod
    def parse(cls, text: str) -> Quiet:
        """Read 22:00-06:00, which goes over midnight, or 12:00-14:00."""
        found = re.fullmatch(r"(\d\d):(\d\d)-(\d\d):(\d\d)", text.strip())
        try:
            if not found:
                raise ValueError
            begin, end = time(int(found[1]), int(found[2])), time(int(found[3]), int(found[4]))
            if begin == end:
                raise ValueError
        except ValueError:
            raise ConfigError(f"{text!r} are not quiet hours", "for example 22:00-06:00, in UTC") from None
        return cls(begin, end)

    def covers(self, moment: datetime) -> bool:
        """Whether a moment is within these hours."""
        at = moment.time().replace(tzinfo=None)
        if self.begin < self.end:
            return self.begin <= at < self.end
        return at >= self.begin or at < self.end

    def over_at(self, moment: datetime) -> datetime:
        """When the hours that cover a moment are over."""
        end = datetime.combine(moment.date(), self.end, moment.tzinfo)
        return end if end > moment else end + timedelta(days=1)


@dataclass(frozen=True)
class Schedule:
    """Runs every so often, or by a cron expression, and never in quiet hours."""

    every: timedelta | None
    cron: Cron | None
    quiet: tuple[Quiet, ...] = ()

    @classmethod
    def parse(cls, every: str | None, cron: str | None, quiet: Sequence[str]) -> Schedule:
        """Read what the settings say. Some hour of the day must not be quiet."""
        if (every is None) == (cron is None):
            raise ConfigError("the schedule needs either `every` or `cron`", "for example every = '6h'")
        made = cls(
            parse_duration(every) if every is not None else None,
            Cron.parse(cron) if cron is not None else None,
            tuple(map(Quiet.parse, quiet)),
        )
        made.after_quiet(datetime(2024, 1, 1, tzinfo=UTC))
        return made

    def is_quiet(self, moment: datetime) -> bool:
        """Whether nothing may start at that moment."""
        return any(hours.covers(moment) for hours in self.quiet)

    def after_quiet(self, moment: datetime) -> datetime:
        """The moment itself, or the end of the quiet hours that it is in."""
        start = moment
        while hours := next((each for each in self.quiet if each.covers(moment)), None):
            moment = hours.over_at(moment)
            if moment - start > timedelta(days=1):
                raise ConfigError("the quiet hours cover the whole day", "leave some time to train")
        return moment

    def next_due(self, last: datetime | None, since: datetime) -> datetime:
        """When the next run is due, given the start of the `last` one, or that there was none `since` then.

        However many runs were missed while the server was down, one run makes up for all of them.
        """
        if self.every is not None:
            return self.after_quiet(since if last is None else last + self.every)
        assert self.cron is not None
        return self.after_quiet(self.cron.next_after(since if last is None else last))
