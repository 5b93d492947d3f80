"""When a served federation trains: an interval or a cron expression, and quiet hours. All times are UTC."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta

from cronsim import CronSim, CronSimError

from solera.core.errors import ConfigError

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_HINT = "minute hour day month weekday, for example '30 2 * * *' (02:30 UTC every night)"


def parse_duration(text: str) -> timedelta:
    """A duration such as 90s, 30m, 6h or 1d."""
    found = re.fullmatch(r"(\d+)\s*([smhd])", text.strip())
    if not found or int(found[1]) == 0:
        raise ConfigError(f"{text!r} is not a duration", "for example 90s, 30m, 6h or 1d")
    return timedelta(seconds=int(found[1]) * _UNITS[found[2]])


@dataclass(frozen=True)
class Cron:
    """A cron expression with five fields, as Debian's cron reads it."""

    text: str

    @classmethod
    def parse(cls, text: str) -> Cron:
        """Check an expression."""
        if (count := len(text.split())) != 5:  # the library reads one of seconds too
            raise ConfigError(f"the cron expression {text!r} has {count} fields, not 5", _HINT)
        try:
            CronSim(text, datetime(2024, 1, 1, tzinfo=UTC))
        except CronSimError as error:
            raise ConfigError(f"{text!r} is not a cron expression: {error}", _HINT) from None
        return cls(text)

    def next_after(self, moment: datetime) -> datetime:
        """The first minute after a moment that the expression matches."""
        return next(CronSim(self.text, moment))


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
