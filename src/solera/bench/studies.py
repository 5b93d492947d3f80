"""Studies: which settings were tried, what each gave on validation, and so which are the best.

tuning/<data set>/<label>--<protocol>--s<seed>.json
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from solera.bench.records import Asked, Code, Part, read_as


class Trial(Part):
    """Settings, and what they gave on the validation items in full ranking. Test items were not looked at."""

    options: dict[str, Any] = Field(description="those that were searched; of the first trial, the defaults")
    end: Literal["finished", "pruned", "failed"]
    ndcg: float | None = Field(None, description="NDCG@10 of the best round, None of a failed trial")
    hr: float | None = None
    rounds: int | None = None
    seconds: float
    error: str | None = None
    curve: tuple[float, ...] = Field((), description="NDCG@10 after every round")


class Study(Asked):
    """All trials of one method on one data set."""

    space: dict[str, Any]
    environment: dict[str, Any]
    code: Code
    trials: tuple[Trial, ...]

    @property
    def best(self) -> Trial:
        """The finished trial with the best validation figure; the earlier of equals."""
        return max(
            (trial for trial in self.trials if trial.end == "finished"), key=lambda trial: trial.ndcg or 0.0
        )


def read_study(path: Path) -> Study:
    """The study in a file; anything else is an error."""
    return read_as(path, Study)


def read_studies(tuning: Path) -> list[Study]:
    """All studies in a folder."""
    paths = (path for path in tuning.rglob("*.json") if not path.name.endswith(".failed.json"))
    return [read_study(path) for path in sorted(paths)]
