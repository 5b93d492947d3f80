"""The figures of a run, in the form every command prints and every file holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl
from pydantic import BaseModel, ConfigDict

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


def brief(result: Mapping[str, Any]) -> str:
    """A result in one line."""
    test = result["test"]["full"]
    leaky = ", leaky" if result["leaky"] else ""
    return (
        f"<{result['method']} on {result['dataset']} ({result['protocol']}{leaky}): "
        f"test HR@10 {test['hr@10']:.4f}, NDCG@10 {test['ndcg@10']:.4f}>"
    )


def metrics_table(parts: Mapping[str, Figures]) -> pl.DataFrame:
    """Figures as a table: a row for every part and ranking, a column for every metric."""
    return pl.DataFrame(
        [
            {"items": part, "ranking": ranking, **row}
            for part, by in parts.items()
            for ranking, row in by.items()
        ]
    )


class _Result(BaseModel):
    """What every result has; the rest is for information."""

    model_config = ConfigDict(strict=True)

    method: str
    dataset: str
    protocol: str
    leaky: bool
    seed: int
    users: int
    items: int
    test: dict[str, dict[str, float]]
    validation: dict[str, dict[str, float]]


def flat(content: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Nested entries under names joined with dots."""
    for key, value in content.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


METRICS = ("hr@10", "ndcg@10", "mrr@10", "hr@20", "ndcg@20")  # of the many, those that are shown
LEAKY = "LEAKY: under this protocol the held-out items can be told from the training negatives."


def title_of(result: dict[str, Any]) -> str:
    """What the figures are of."""
    return f"{result['method']} on {result['dataset']}, protocol {result['protocol']}, seed {result['seed']}"


def rows_of(result: dict[str, Any]) -> list[tuple[str | float, ...]]:
    """The figures that are shown, in the order of `METRICS`, each row with its name."""
    return [
        (f"{part}, {name}", *(result[part][key][metric] for metric in METRICS))
        for part in ("test", "validation")
        for key, name in (("full", "full ranking"), ("sampled99", "99 negatives"))
    ]


def check_result(content: Any) -> None:
    """Complain (ValidationError) of what is no result."""
    _Result.model_validate(content)
