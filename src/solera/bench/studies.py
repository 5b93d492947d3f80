"""Studies: which settings were tried, what each gave on validation, and so which are the best.

tuning/<data set>/<label>--<protocol>--s<seed>.json
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from solera.bench.records import Code, RunRequest, read_as
from solera.bench.trials import Trial, best
from solera.core.errors import RunError
from solera.core.types import Frozen


class Rejected(Frozen):
    """A trial whose settings were the best, and then diverged in a run of full length."""

    trial: int = Field(description="its number, from 0")
    seed: int
    why: str


class Study(RunRequest):
    """All trials of one method on one data set."""

    space: dict[str, Any]
    environment: dict[str, Any]
    code: Code
    trials: tuple[Trial, ...]
    rejected: tuple[Rejected, ...] = ()
    users: int | None = Field(default=None, description="of the data set, on which final runs are made")
    trials_of: str | None = Field(default=None, description="of 0.2: the twin whose trials were taken")

    @property
    def best(self) -> Trial:
        """The finished trial with the best validation figure that was not rejected; the earlier of equals."""
        return self.trials[self._best_number]

    @property
    def _best_number(self) -> int:
        rejected = {each.trial for each in self.rejected}
        left = [number for number in range(len(self.trials)) if number not in rejected]
        found = best(tuple(self.trials[number] for number in left))
        if found is None:
            raise RunError(
                "no trial finished, or all were rejected",
                "read the errors of the trials and correct the search space",
            )
        return next(number for number in left if self.trials[number] is found)

    @property
    def passes(self) -> float:
        """What all trials cost together."""
        return sum(trial.passes or 0.0 for trial in self.trials)

    def without_best(self, seed: int, why: str) -> Study:
        """The study with its best trial rejected."""
        rejected = Rejected(trial=self._best_number, seed=seed, why=why)
        return self.model_copy(update={"rejected": (*self.rejected, rejected)})


def read_study(path: Path) -> Study:
    """The study in a file; anything else is an error."""
    return read_as(path, Study)


def read_studies(tuning: Path) -> list[Study]:
    """All studies in a folder."""
    paths = (path for path in tuning.rglob("*.json") if not path.name.endswith(".failed.json"))
    return [read_study(path) for path in sorted(paths)]
