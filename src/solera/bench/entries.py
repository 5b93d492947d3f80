"""The runs of a matrix."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from solera.bench.records import Record, RunRequest, asked, read
from solera.bench.spaces import Space
from solera.bench.studies import Study, read_study
from solera.bench.trials import TrialRecord
from solera.runs.config import BaselineConfig, RunConfig

Readable = Record | Study | TrialRecord


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

    @property
    def title(self) -> str:
        """Name shown while the entry runs."""
        return self.label

    def __str__(self) -> str:
        return f"{self.label} on {self.asked.dataset}, {self.config.protocol}, seed {self.config.seed}"


@dataclass(frozen=True)
class Tuning(Entry):
    """A search for settings, whose record is a study; the config has what all its trials share."""

    space: Space = field(default_factory=dict)
    trials: int = 1
    rounds: int | None = None  # of the preset to come
    patience: int | None = None  # likewise
    first: dict[str, Any] = field(default_factory=dict)  # options of the first trial, if not the defaults

    @cached_property
    def asked(self) -> RunRequest:
        """The request that the study will contain."""
        base = super().asked
        more = {"trials": self.trials, "preset_rounds": self.rounds, "preset_patience": self.patience}
        return base.model_copy(update={"config": base.config | more})

    def read(self, path: Path) -> Study:
        """Read the finished study."""
        return read_study(path)

    def __str__(self) -> str:
        return f"{self.label} on {self.asked.dataset}, {self.trials} trials"


@dataclass(frozen=True)
class Matrix:
    """The runs of a benchmark, and the folder of their records."""

    results: Path
    entries: tuple[Entry, ...]

    def record(self, entry: Entry) -> Path:
        """Path of the entry's record, which may not exist yet."""
        return self.results / entry.asked.name
