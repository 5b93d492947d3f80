"""A sweep: one method on one data set with many settings, in a folder.

    trials.parquet    all trials that have ended: what a kill leaves is gone on from
    optuna.log        Optuna's storage, of a search
    best.toml         the best settings as a preset, for `solera train --preset`
    sweep.html        the report

Trials of a grid are known beforehand. Those of a search are chosen by Optuna when their turn comes, from the
trials that have ended by then; with one worker that depends on nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from solera.core.errors import ConfigError, RunError
from solera.core.files import write_atomically
from solera.runs.environment import anonymous, environment, source
from solera.runs.settings import RunConfig
from solera.study.matrix import Entry, Matrix
from solera.study.presets import preset_of
from solera.study.records import SEARCH, WORK, RunRequest, Store
from solera.study.search_space import Space, as_json, grid, is_grid
from solera.study.trials import Study, TrialRecord, TrialRequest


@dataclass(frozen=True)
class Point(Entry):
    """One trial. Its settings are given, or, where they are None, still to be chosen."""

    number: int = 0
    space: Space = field(default_factory=dict)
    settings: dict[str, Any] | None = None
    test: bool = False
    makes: ClassVar[type[RunRequest]] = TrialRecord

    @cached_property
    def asked(self) -> TrialRequest:
        """The request that the record will contain."""
        base = super().asked
        more = {"space": as_json(self.space), "with_test": self.test}
        own = {"trial": self.number, "settings": self.settings}
        return TrialRequest(**base.model_dump() | {"config": base.config | more | own})

    @property
    def title(self) -> str:
        """Its number, and its settings where they are known."""
        return f"trial {self.number}" + (f": {shown(self.settings)}" if self.settings else "")

    def __str__(self) -> str:
        return f"trial {self.number}"


def shown(settings: dict[str, Any]) -> str:
    """Settings as one line of text."""
    each = (f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in settings.items())
    return ", ".join(each) or "as given"


@dataclass(frozen=True)
class Sweep:
    """What is asked for: the run that all trials share, and what they vary."""

    config: RunConfig
    space: Space
    trials: int
    folder: Path
    test: bool = False  # whether test items are scored as well; they decide nothing

    @cached_property
    def matrix(self) -> Matrix:
        """All trials."""
        chosen: Sequence[dict[str, Any] | None] = [None] * self.trials
        if is_grid(self.space):
            chosen = list(grid(self.space))
        points = (
            Point(self.config.full_method, self.config, None, number, self.space, settings, self.test)
            for number, settings in enumerate(chosen)
        )
        return Matrix(self.folder / "trials", tuple(points))

    @cached_property
    def store(self) -> Store[TrialRecord]:
        """Where the trials are."""
        return Store(self.matrix.results, TrialRecord)

    def begin(self) -> None:
        """Check the folder: a sweep may go on with more trials, but with nothing else changed."""
        made = self.store.all()
        if any(_shared(record) != _shared(self.matrix.entries[0].asked) for record in made):
            raise RunError(f"{self.folder} holds another sweep", "give another --out")
        if made or not self.folder.exists():
            return
        if any(self.folder.iterdir()) and not (self.folder / WORK).exists():
            raise RunError(f"{self.folder} exists and is not the folder of a sweep", "give another --out")
        (self.folder / SEARCH).unlink(missing_ok=True)

    def study(self) -> Study:
        """All trials so far."""
        first = self.matrix.entries[0].asked
        config = _shared(first) | {"dataset": self.config.dataset}
        trials = tuple(record.trial for record in sorted(self.store.all(), key=lambda record: record.name))
        return Study(
            **first.model_dump() | {"config": config},
            space=config.pop("space"),
            environment=anonymous(environment(1, "cpu")),
            code=source(),
            trials=trials,
        )

    def write_best(self, study: Study) -> Path:
        """Write the best settings as a preset."""
        path = self.folder / "best.toml"
        write_atomically(path, preset_of(study, self.config))
        return path


def _shared(request: RunRequest) -> dict[str, Any]:
    """What all trials have in common."""
    return {key: value for key, value in request.config.items() if key not in ("trial", "settings")}


def check_size(space: Space, trials: int | None) -> int:
    """Number of trials of a sweep."""
    if not space:
        raise ConfigError("nothing to sweep", "give -s learning_rate=0.01,0.1, as often as you like")
    if not is_grid(space):
        return trials or 20
    if trials is not None:
        raise ConfigError(
            "--trials has no effect on a grid, which is tried in full",
            "omit --trials, or give a range such as 1e-4..1",
        )
    return len(list(grid(space)))
