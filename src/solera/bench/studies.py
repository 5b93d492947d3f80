"""Studies: which settings were tried, what each gave on validation, and so which are the best.

tuning/<data set>/<label>--<protocol>--s<seed>.json
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from solera.bench.records import Code, RunRequest, read_as
from solera.bench.trials import Trial, best
from solera.core.errors import RunError


class Study(RunRequest):
    """All trials of one method on one data set."""

    space: dict[str, Any]
    environment: dict[str, Any]
    code: Code
    trials: tuple[Trial, ...]

    @property
    def best(self) -> Trial:
        """The finished trial with the best validation figure; the earlier of equals."""
        found = best(self.trials)
        if found is None:
            raise RunError("no trial finished", "read the errors of the trials and correct the search space")
        return found


def read_study(path: Path) -> Study:
    """The study in a file; anything else is an error."""
    return read_as(path, Study)


def read_studies(tuning: Path) -> list[Study]:
    """All studies in a folder."""
    paths = (path for path in tuning.rglob("*.json") if not path.name.endswith(".failed.json"))
    return [read_study(path) for path in sorted(paths)]
