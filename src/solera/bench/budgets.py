"""What the tuning of a method cost."""

from __future__ import annotations

from typing import NamedTuple

from solera.bench.studies import Study
from solera.bench.trials import best

COLUMNS = (
    "data set",
    "method",
    "protocol",
    "trials",
    "pruned",
    "failed",
    "rejected",
    "passes",
    "seconds",
    "validation NDCG@10",
)


class Spent(NamedTuple):
    """The cost of one study, and what it found."""

    dataset: str
    label: str
    protocol: str
    trials: int
    pruned: int
    failed: int
    rejected: int
    passes: float
    seconds: float
    ndcg: float | None

    def cells(self) -> tuple[str, ...]:
        """The row of a table."""
        *counts, passes, seconds, ndcg = self
        found = "" if ndcg is None else f"{ndcg:.4f}"
        return (*map(str, counts), f"{passes:.0f}", f"{seconds:.0f}", found)


def spent(study: Study) -> Spent:
    """Count a study."""
    ends = [trial.end for trial in study.trials]
    rejected = {each.trial for each in study.rejected}
    found = best(tuple(trial for number, trial in enumerate(study.trials) if number not in rejected))
    return Spent(
        dataset=study.dataset,
        label=study.label,
        protocol=study.protocol,
        trials=len(ends),
        pruned=ends.count("pruned"),
        failed=ends.count("failed"),
        rejected=len(rejected),
        passes=study.passes,
        seconds=sum(trial.seconds for trial in study.trials),
        ndcg=found.ndcg if found else None,
    )
