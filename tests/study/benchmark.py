"""What the tests of benchmarks share: a small data set, matrices, and records made by hand."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from solera.evaluate import metrics
from solera.study.matrix import Entry, Matrix, read_matrix
from solera.study.records import Record, Store

OWN = 'datasets = ["ratings.csv"]\ncolumns = { user = "who", item = "what", time = "when" }\n'


def ratings(folder: Path) -> Path:
    """30 users, 40 items."""
    draw = random.Random(0)
    lines = ["who,what,when"]
    for user in range(30):
        for item in draw.sample(range(40), 8 + user % 5):
            lines.append(f"u{user},i{item},{len(lines)}")
    path = folder / "ratings.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def matrix(folder: Path, text: str) -> Matrix:
    path = folder / "matrix.toml"
    path.write_text(text, encoding="utf-8")
    return read_matrix(path)


def entries(folder: Path, text: str) -> tuple[Entry, ...]:
    return matrix(folder, text).entries


def forget(store: Store[Any], *names: str) -> None:
    """Take records out of a table, as nobody else does."""
    store.collect()
    table = pl.read_parquet(store.path)
    table.filter(~pl.col("name").is_in(names)).write_parquet(store.path)


def figures(places: list[float]) -> dict[str, float]:
    each = metrics.per_user(np.array(places, dtype=float), np.ones(len(places), dtype=np.int64))
    return metrics.mean(each)


def _figures_of(ranks: list[float]) -> dict[str, dict[str, float]]:
    means = figures(ranks)
    return {"full": means, "sampled99": {name: value / 2 for name, value in means.items()}}


def made(label: str, ranks: list[float], longer: list[float] | None = None, **changes) -> Record:
    """A record with the figures of the given full-ranking places; half of its users are active.

    It was tested once: EASE and SASRec with the validation item, others without. Popularity is the same.
    With `longer`, the places with the validation item, it was tested twice.
    """
    known = ["test"] if label in {"ease", "fedease", "sasrec", "fedsasrec"} else ["test_train"]
    tests = dict.fromkeys(["test", "test_train"] if label == "popularity" else known, ranks)
    tests = {"test": longer, "test_train": ranks} if longer else tests
    half = len(ranks) // 2
    shown = {"hr@10": 0.25, "ndcg@10": 0.125}
    groups = [
        {"least": 3, "most": 9, "users": half, "full": shown, "sampled99": shown},
        {"least": 10, "most": 50, "users": len(ranks) - half, "full": shown, "sampled99": shown},
    ]
    fields = {
        "label": label,
        "kind": "method",
        "dataset": "toy",
        "protocol": "strict",
        "seed": 0,
        "environment": {},
        "code": {},
        "by_activity": groups,
        "seconds": 9.0,
        "bytes_until_selected": {"up": 3e6, "down": 6e6},
        "ranks": tests.get("test"),
        "ranks_train": tests.get("test_train"),
        **changes,
    }
    is_method = fields["kind"] == "method"
    result = {
        "format": 2,
        "method": label,
        "leaky": fields["protocol"] == "paper",
        "users": len(ranks),
        "items": 60,
        "evaluated_users": len(ranks),
        **{name: _figures_of(each) for name, each in tests.items()},
        "validation": _figures_of(longer or ranks),
        "options": {"embedding_size": 8},
        "bytes": {"up": 1e5, "down": 2e5} if is_method else None,
        "seconds_per_round": 0.5 if is_method else None,
        **{name: fields[name] for name in ("dataset", "protocol", "seed")},
    }
    config = {"method": label, "seed": fields["seed"], "options": {"embedding_size": 8}}
    return Record.model_validate({"config": config, "result": result, **fields})
