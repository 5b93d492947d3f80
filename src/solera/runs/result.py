"""The figures of a run, in the form every command prints and every file holds."""

from __future__ import annotations

from typing import Any

from solera.data.split import Split
from solera.evaluate import Evaluation

Figures = dict[str, dict[str, float]]  # "full" and "sampled99", each with "hr@10", "ndcg@10", …


def figures(evaluation: Evaluation) -> Figures:
    """The means of an evaluation."""
    return {"full": evaluation.full, "sampled99": evaluation.sampled99}


def make_result(
    method: str, split: Split, seed: int, *, test: Evaluation, validation: Figures, **more: Any
) -> dict[str, Any]:
    """What every result says, whatever made it; `more` is what only some can say."""
    return {
        "method": method,
        "dataset": split.data.name,
        "protocol": split.protocol,
        "leaky": split.leaky,
        "seed": seed,
        "users": split.data.n_users,
        "items": split.data.n_items,
        "evaluated_users": len(test.full_ranking.users),
        "test": figures(test),
        "validation": validation,
        **more,
    }
