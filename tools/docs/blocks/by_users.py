"""What differential privacy costs by the number of users."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from blocks.markdown import NONE_YET, table
from blocks.protected import EPSILONS

from solera.study.records import Store
from solera_research.records import Measured

Points = Sequence[dict[str, Any]]


def read_points(table: Path) -> Points:
    """The records that research/experiments/privacy_size.py left."""
    return [record.content for record in Store(table, Measured).all()]


def privacy_by_users(points: Points, kind: str) -> str:
    """HR@10 / NDCG@10 by users and ε, with the loss of HR@10; `kind` is synthetic or a data set."""
    found: dict[tuple[int, int], dict[float | None, dict[str, Any]]] = {}
    for point in points:
        if point["data"] == kind or (kind == "synthetic" and point["data"][0].isdigit()):
            found.setdefault((point["users"], point["items"]), {})[point["epsilon"]] = point
    rows = [
        (*(f"{number:,}" for number in size), *(_figures(found[size], epsilon) for epsilon in EPSILONS))
        for size in sorted(found)
        if set(EPSILONS) <= set(found[size])
    ]
    head = ("users", "items", *(f"ε = {'∞' if e is None else f'{e:g}'}" for e in EPSILONS))
    return table(head, rows) if rows else NONE_YET


def privacy_settings(points: Points) -> str:
    """What was chosen on validation items."""
    rows = [
        (
            point["data"],
            "∞" if point["epsilon"] is None else f"{point['epsilon']:g}",
            f"{point['delta']:.1e}",
            *("–" if point[name] is None else f"{point[name]:g}" for name in _SETTINGS),
            str(point["tried"]),
        )
        for point in sorted(points, key=lambda p: (p["users"], p["items"], -(p["epsilon"] or 1e9)))
    ]
    head = ("data", "ε", "δ", *(name.replace("_", " ") for name in _SETTINGS), "settings tried")
    return table(head, rows) if rows else NONE_YET


_SETTINGS = ("noise_multiplier", "clip", "threshold", "decay", "ridge", "popularity_prior")


def _figures(mine: dict[float | None, dict[str, Any]], epsilon: float | None) -> str:
    test = mine[epsilon]["test"]
    shown = f"{test['hr@10']:.4f} / {test['ndcg@10']:.4f}"
    if epsilon is None:
        return shown
    change = test["hr@10"] / mine[None]["test"]["hr@10"] - 1
    return f"{shown} ({'−' if change < 0 else '+'}{abs(change):.0%})"
