"""Settings of `solera federation serve`, from one TOML file.

It trains after an interval or by a cron expression, and not in quiet hours. All times are UTC.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any

from cronsim import CronSim, CronSimError
from pydantic import Field, ValidationError

from solera.core.errors import ConfigError
from solera.core.frozen import Frozen
from solera.dp.settings import DP
from solera.federation.common.settings import Settings

_OURS = (
    "min_nodes",
    "patience",
    "hold_back",
    "evaluation_epsilon",
)  # settings of a federation that the schedule decides
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


class SchedulePlan(Frozen):
    """When to train."""

    every: str | None = None
    cron: str | None = None
    quiet: tuple[str, ...] = ()
    rounds: int = Field(default=1, ge=1)
    smallest_cohort: int = Field(default=2, ge=1)
    wait: str = "1h"

    def schedule(self) -> Schedule:
        """The schedule, checked."""
        return Schedule.parse(self.every, self.cron, self.quiet)

    @property
    def patience(self) -> timedelta:
        """How long a due run waits for its cohort."""
        return parse_duration(self.wait)


class GatePlan(Frozen):
    """What a new version must pass before all devices get it."""

    evaluate: bool = False
    epsilon: float = Field(default=0.5, gt=0, le=2)
    total_epsilon: float = Field(default=4.0, gt=0)
    top: int = Field(default=10, ge=1)
    least_users: int = Field(default=50, ge=1)
    largest_drop: float = Field(default=0.05, ge=0, lt=1)
    canary_share: float = Field(default=0.0, ge=0, lt=1)
    canary_time: str = "12h"

    @property
    def watched(self) -> timedelta:
        """How long a canary is watched."""
        return parse_duration(self.canary_time)


class VersionsPlan(Frozen):
    """How many versions are kept, and whether bundles are made of published ones."""

    keep: int = Field(default=5, ge=1)
    publisher_key: Path | None = None


class ServePlan(Frozen):
    """All settings. Paths are absolute."""

    bundle: Path
    schedule: SchedulePlan
    gate: GatePlan = GatePlan()
    versions: VersionsPlan = VersionsPlan()
    federation: dict[str, Any] = Field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> ServePlan:
        """Read a file. Relative paths in it are relative to its folder."""
        try:
            found = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(
                f"{path} cannot be read: {error.strerror}", f"solera federation serve --example > {path}"
            ) from None
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{path} is not TOML: {error}", "correct the line") from None
        try:
            plan = cls.model_validate(found).placed(path.resolve().parent)
        except ValidationError as error:
            problems = [f"{'.'.join(map(str, e['loc']))}: {e['msg'].lower()}" for e in error.errors()]
            raise ConfigError(
                f"{path}: {'; '.join(problems)}", "solera federation serve --example shows all settings"
            ) from None
        plan.check()
        return plan

    def placed(self, folder: Path) -> ServePlan:
        """With absolute paths."""
        key = self.versions.publisher_key
        versions = self.versions.model_copy(update={"publisher_key": key and folder / key})
        return self.model_copy(update={"bundle": folder / self.bundle, "versions": versions})

    def check(self) -> None:
        """Refuse settings that contradict each other, before anything starts."""
        self.schedule.schedule()
        _ = self.schedule.patience, self.gate.watched
        settings = self.settings()
        if self.gate.canary_share and not self.gate.evaluate:
            raise ConfigError(
                "gate.canary_share needs gate.evaluate: nothing else says whether a canary is good",
                "set evaluate = true, or leave canary_share out",
            )
        if self.gate.evaluate and settings.secure_aggregation:
            raise ConfigError(
                "gate.evaluate cannot be combined with secure_aggregation: answers of single nodes are seen",
                "leave evaluate out; versions and rollback by hand still work",
            )
        if self.gate.evaluate and settings.dp is not None:
            raise ConfigError(
                "gate.evaluate cannot be combined with dp, whose ε does not cover answers to evaluations",
                "leave evaluate out; versions and rollback by hand still work",
            )
        if settings.secure_aggregation and settings.dp is None:
            raise ConfigError(
                "a schedule opens masked sums again and again, and without noise two of them can show what"
                " one household has",
                'set dp = "epsilon=8,delta=1e-5,clip=1,mode=distributed" and rounds = … under [federation];'
                " or run once: solera federation run",
            )
        if settings.dp is not None and "rounds" not in self.federation:
            raise ConfigError(
                "federation.dp needs federation.rounds: ε is computed for all rounds that will ever run",
                "for example rounds = 365 for one round every night of a year",
            )

    def settings(self) -> Settings:
        """Settings of a new federation."""
        return Settings(**self.given())

    def given(self) -> dict[str, Any]:
        """What the file says about rounds, with what follows from the schedule."""
        for name in _OURS:
            if name in self.federation:
                raise ConfigError(
                    f"federation.{name} follows from other settings",
                    "use schedule.smallest_cohort, schedule.wait and gate.evaluate",
                )
        found = dict(self.federation)
        if "dp" in found:
            found["dp"] = DP.parse(str(found["dp"]))
        try:
            Settings(**found)
        except ValidationError as error:
            wrong = error.errors()[0]
            where = ".".join(map(str, wrong["loc"]))
            raise ConfigError(f"federation.{where}: {wrong['msg'].lower()}", "correct the setting") from None
        patience = self.schedule.patience.total_seconds()
        ours: dict[str, Any] = {"min_nodes": self.schedule.smallest_cohort, "patience": patience}
        asks = self.gate.evaluate
        ours |= {
            "repeats": True,
            "hold_back": asks,
            "evaluation_epsilon": self.gate.total_epsilon if asks else 0,
        }
        return found | ours


EXAMPLE = """\
# Settings of `solera federation serve`. All times are UTC. Paths are relative to this file.

# The signed bundle: method and catalogue. When the publisher replaces the file by the next version of the
# catalogue, the next run takes it in.
bundle = "films.bundle"

[schedule]
every = "6h"                  # or cron = "30 2 * * *" (minute hour day month weekday)
quiet = ["07:00-09:00"]       # nothing starts in these hours; 22:00-06:00 goes over midnight
rounds = 3                    # rounds of each run
smallest_cohort = 2           # nodes that must be online before a round starts
wait = "1h"                   # how long a due run waits for them before it is skipped

[gate]
evaluate = true               # hold back every user's last item, and let devices rank it after each run
epsilon = 0.5                 # of randomized response: privacy cost per user and evaluation (at most 2)
total_epsilon = 4.0           # of all evaluations together: after it no version passes; devices allow 4
top = 10                      # a hit is a held-back item among the first 10
least_users = 50              # answers that the gate needs
largest_drop = 0.05           # a hit rate more than 5 % below the published one does not pass
canary_share = 0.1            # share of nodes that get a new version first; 0 for all at once
canary_time = "12h"           # how long they are watched

[versions]
keep = 5                      # older ones are deleted, except those in use
# publisher_key = "publisher.key"   # sign a bundle of every published version, for new devices

# Settings of the rounds, named as in settings.json. All have defaults.
[federation]
deadline = 600                # seconds to wait for replies
# dp = "epsilon=8,delta=1e-5,clip=1"   # with rounds = …, all that will ever run
"""
