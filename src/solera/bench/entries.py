"""The runs of a matrix."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from solera.baselines import configure
from solera.bench.effort import Effort, full_length
from solera.bench.records import Record, RunRequest, asked, read
from solera.bench.spaces import Space, as_json
from solera.bench.studies import Study, read_study
from solera.bench.trials import TrialRecord
from solera.core.errors import RunError
from solera.core.text import counted
from solera.runs.settings import BaselineConfig, RunConfig

Readable = Record | Study | TrialRecord

PLACE = ("dataset", "protocol", "seed", "columns", "min_interactions")  # settings that are not of the model


@dataclass(frozen=True)
class Entry:
    """One run of a matrix."""

    label: str
    config: RunConfig | BaselineConfig
    preset: str | None = None

    @cached_property
    def asked(self) -> RunRequest:
        """The request that the record will contain."""
        return asked(self.label, self.config, self.preset)

    def read(self, path: Path) -> Readable:
        """Read the record of the finished run."""
        return read(path)

    def difference(self, found: RunRequest) -> str:
        """How a record differs from this request; empty if it does not.

        A record from before an option existed differs if the request has another value than its default.
        """
        return found.difference(self.asked) or ", ".join(
            f"no {name} instead of {value!r}" for name, value in self._options_unknown_to(found)
        )

    def _options_unknown_to(self, found: RunRequest) -> list[tuple[str, Any]]:
        known, given = found.config.get("options", {}), self.asked.config.get("options", {})
        if known.keys() >= given.keys():
            return []
        by_default = self._default_options()
        return [
            (name, value)
            for name, value in given.items()
            if name not in known and value != by_default.get(name)
        ]

    def _default_options(self) -> dict[str, Any]:
        if isinstance(self.config, RunConfig):
            return self.config.model_copy(update={"options": {}, "dp": None}).resolved().options
        return configure(self.config.baseline).model_dump(mode="json")

    def complete(self, path: Path) -> bool:
        """Whether nothing of the entry is left to run."""
        return path.exists()

    @property
    def title(self) -> str:
        """Name shown while the entry runs."""
        return self.label

    def __str__(self) -> str:
        return f"{self.label} on {self.asked.dataset}, {self.config.protocol}, seed {self.config.seed}"


def is_recorded(results: Path, entry: Entry) -> bool:
    """Whether a run has a record with its settings."""
    path = results / entry.asked.name
    return path.exists() and not entry.difference(read(path))


@dataclass(frozen=True)
class Tuning(Entry):
    """A search for settings, whose record is a study, and the final runs with the best of them."""

    space: Space = field(default_factory=dict)
    effort: Effort = field(default_factory=Effort)
    first: tuple[dict[str, Any], ...] = ({},)  # settings of the first trials, which run in full
    folder: Path = Path("tuning")  # of the studies
    results: Path = Path("results")  # of the final runs' records
    seeds: tuple[int, ...] = ()  # of the final runs

    @cached_property
    def asked(self) -> RunRequest:
        """The request that the study will contain."""
        base = super().asked
        more = {"effort": self.effort.model_dump(mode="json"), "first": list(self.first)}
        return base.model_copy(update={"config": base.config | more})

    def read(self, path: Path) -> Study:
        """Read the finished study."""
        return read_study(path)

    def difference(self, found: RunRequest) -> str:
        """How a study differs from this search, by its settings or by the ranges it was made in."""
        if (of_settings := super().difference(found)) or not isinstance(found, Study):
            return of_settings
        ranges = as_json(self.space)
        names = sorted(name for name in ranges | found.space if ranges.get(name) != found.space.get(name))
        return f"other ranges of {', '.join(names)}" if names else ""

    def with_options(self, options: dict[str, Any], users: int | None) -> RunConfig | BaselineConfig:
        """A full-length run on so many users."""
        if isinstance(self.config, RunConfig):
            config = self.config.model_copy(update={"options": options})
            return full_length(config, self.effort, users).resolved()
        taken = configure(self.config.baseline, options).model_dump(mode="json")
        return self.config.model_copy(update={"options": taken})

    @property
    def total(self) -> int:
        """Passes of the search and of all final runs at most."""
        return (self.effort.trials + len(self.seeds)) * self.effort.passes

    @property
    def final_names(self) -> list[str]:
        """The records of the final runs, within their folder."""
        runs = (self.config.model_copy(update={"seed": seed}) for seed in self.seeds)
        return [asked(self.label, run).name for run in runs]

    def finals(self, study: Study) -> list[Entry]:
        """The final runs with the study's best settings, one for each seed."""
        chosen = self.with_options(study.best.options, study.users)
        return [Entry(self.label, chosen.model_copy(update={"seed": seed})) for seed in self.seeds]

    def missing(self, study: Study) -> list[Entry]:
        """The final runs that have no record with these settings."""
        return [entry for entry in self.finals(study) if not is_recorded(self.results, entry)]

    def complete(self, path: Path) -> bool:
        """Whether the search and all final runs are done."""
        with suppress(RunError):  # no settings are left
            return path.exists() and not self.missing(self.read(path))
        return False

    @property
    def title(self) -> str:
        """Name shown while the entry runs."""
        return f"{self.label}, tuning" + (" and final runs" if self.seeds else "")

    def __str__(self) -> str:
        where = f"{self.label} on {self.asked.dataset}, {self.config.protocol}"
        trials = counted(self.effort.trials if self.space else len(self.first), "trial", "trials")
        final = f", then {counted(len(self.seeds), 'final run', 'final runs')}" if self.seeds else ""
        return f"{where}, {trials}{final}"


@dataclass(frozen=True)
class Matrix:
    """The runs of a benchmark, and the folder of their records."""

    results: Path
    entries: tuple[Entry, ...]

    def record(self, entry: Entry) -> Path:
        """Path of the entry's record, which may not exist yet."""
        folder = entry.folder if isinstance(entry, Tuning) else self.results
        return folder / entry.asked.name
