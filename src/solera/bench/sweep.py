"""A sweep: one method on one data set with many settings, every trial a record of its own in a folder.

    study.json        what was asked for, and all trials so far
    trials/0007.json  one trial, written whole or not at all: what a kill leaves is gone on from
    best.toml         the best settings as a preset, for `solera train --preset`
    sweep.html        the report

Trials of a grid are known beforehand. Those of a search are chosen by Optuna when their turn comes, from the
trials that are in the folder by then; with one worker that depends on nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from solera.bench.axes import grid, is_grid
from solera.bench.best import preset_of
from solera.bench.entries import Entry, Matrix
from solera.bench.machine import anonymous, source
from solera.bench.records import Code, read_as, write
from solera.bench.spaces import Space, as_json
from solera.bench.studies import Study, read_study
from solera.bench.trials import Trial, TrialRecord, TrialRequest
from solera.core.errors import ConfigError, RunError
from solera.core.files import write_atomically
from solera.runs import RunConfig
from solera.runs.environment import environment


@dataclass(frozen=True)
class Point(Entry):
    """One trial. Its settings are given, or, where they are None, still to be chosen."""

    number: int = 0
    space: Space = field(default_factory=dict)
    settings: dict[str, Any] | None = None
    test: bool = False

    @cached_property
    def asked(self) -> TrialRequest:
        """The request that the record will contain."""
        base = super().asked
        more = {"trial": self.number, "settings": self.settings, "with_test": self.test}
        return TrialRequest(**base.model_dump() | {"config": base.config | more})

    def read(self, path: Path) -> TrialRecord:
        """Read the record of the finished trial."""
        return read_as(path, TrialRecord)

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

    def study(self) -> Study:
        """All trials that are in the folder."""
        made = read_trials(self.folder / "trials")
        return self._empty.model_copy(update={"trials": tuple(made[number] for number in sorted(made))})

    @cached_property
    def _empty(self) -> Study:
        commit, dirty = source()
        base = self.matrix.entries[0].asked.model_dump()
        own = ("trial", "settings")
        config = {key: value for key, value in base["config"].items() if key not in own}
        config |= {"dataset": self.config.dataset, "preset_rounds": self.config.rounds}
        config |= {"preset_patience": self.config.patience}
        return Study(
            **base | {"config": config},
            space=as_json(self.space),
            environment=anonymous(environment(1, "cpu")),
            code=Code(commit=commit, dirty=dirty),
            trials=(),
        )

    def begin(self) -> Study:
        """Make the folder, or go on with it: with more trials, but with nothing else changed."""
        path, study = self.folder / "study.json", self.study()
        if path.exists():
            former = read_study(path)
            if (former.config, former.space) != (study.config, study.space):
                raise RunError(f"{self.folder} holds another sweep", "give another --out")
        elif self.folder.exists() and any(self.folder.iterdir()):
            raise RunError(f"{self.folder} exists and is not the folder of a sweep", "give another --out")
        write(study, path)
        return study

    def save(self) -> Study:
        """Save the study with the trials so far."""
        study = self.study()
        write(study, self.folder / "study.json")
        return study

    def write_best(self, study: Study) -> Path:
        """Write the best settings as a preset."""
        path = self.folder / "best.toml"
        write_atomically(path, preset_of(study, self.config))
        return path


def read_trials(trials: Path) -> dict[int, Trial]:
    """The trials of a folder, by their number."""
    files = sorted(path for path in trials.glob("*.json") if path.stem.isdigit())
    return {int(path.stem): read_as(path, TrialRecord).trial for path in files}


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
