"""What the tuning of a method cost, and what it gained over the settings it began with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from solera.bench.spaces import Range
from solera.bench.studies import Study
from solera.bench.trials import best

COLUMNS = ("method", "trials", "failed", "passes", "seconds", "given", "chosen")


class Spent(NamedTuple):
    """The cost of one study, and what it found."""

    dataset: str
    protocol: str
    label: str
    trials: int
    pruned: int
    failed: int
    rejected: int
    passes: float
    seconds: float
    given: float | None  # NDCG@10 on validation of the first trials, whose settings are given
    ndcg: float | None  # the same of the chosen trial
    near_end: dict[str, float]  # its options that lie near an end of their range, which may be too narrow

    def cells(self) -> tuple[str | float | None, ...]:
        """The row of a table of its data set."""
        counts = self.label, self.trials, self.failed, round(self.passes), round(self.seconds)
        return (*counts, self.given, self.ndcg)


def spent(study: Study) -> Spent:
    """Count a study."""
    ends = [trial.end for trial in study.trials]
    rejected = {each.trial for each in study.rejected}
    left = [trial for number, trial in enumerate(study.trials) if number not in rejected]
    chosen = best(tuple(left))
    first = [trial.options for trial in study.trials[: len(study.config.get("first", [{}]))]]
    given = best(tuple(trial for trial in left if trial.options in first))
    return Spent(
        dataset=study.dataset,
        protocol=study.protocol,
        label=study.label,
        trials=len(ends),
        pruned=ends.count("pruned"),
        failed=ends.count("failed"),
        rejected=len(rejected),
        passes=study.passes,
        seconds=sum(trial.seconds for trial in study.trials),
        given=given.ndcg if given else None,
        ndcg=chosen.ndcg if chosen else None,
        near_end=_near_end(study.space, chosen.options if chosen else {}),
    )


def narrow(rows: Iterable[Spent]) -> str:
    """A sentence on options that were chosen near an end of their range; empty if there are none."""
    found = [f"{row.label} {option} {value:.4g}" for row in rows for option, value in row.near_end.items()]
    return f"Near an end of the range that was searched: {', '.join(found)}." if found else ""


def _near_end(space: dict[str, Any], options: dict[str, Any]) -> dict[str, float]:
    return {
        option: options[option]
        for option, where in space.items()
        if Range.model_validate(where).near_end(options.get(option))
    }
