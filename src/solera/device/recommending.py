"""Recommendations from a history and a model, with the items of the history that speak for each."""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from solera.device.bundle import Item
from solera.device.catalogue import Catalogue
from solera.device.dates import DAY, days_of

if TYPE_CHECKING:
    from solera.device.models.served import Served


class Reason(NamedTuple):
    """An item of the own history that raised a score, and by how much."""

    item: str
    title: str
    part: float


class DeviceRecommendation(NamedTuple):
    """One recommended item; its score is the sum of the reasons, the other items' part and its popularity."""

    rank: int
    item: str
    title: str
    score: float
    reasons: tuple[Reason, ...] = ()
    others: float = 0.0
    popular: float = 0.0


def recommend(
    model: Served,
    catalogue: Catalogue,
    times: Mapping[str, int | None],
    *,
    left_out: Collection[str],
    k: int,
    reasons: int = 0,
    allowed: Callable[[Item], bool] | None = None,
) -> list[DeviceRecommendation]:
    """The k best items that are allowed and not left out.

    `times` are the items of the history, oldest first, with when they were met.
    """
    known, items = catalogue.number, catalogue.items
    history = list(times)
    rows = np.array([known[item] for item in history], dtype=np.int64)
    hidden = {known[item] for item in left_out if item in known}
    if allowed is not None:
        hidden |= {row for row, item in enumerate(items) if not allowed(item)}
    when = days_of(list(times.values())), clock.time() / DAY
    best = model.best(rows, np.array(sorted(hidden), dtype=np.int64), k, *when)
    shown = [
        DeviceRecommendation(rank, items[row].id, items[row].title, score)
        for rank, (row, score) in enumerate(best, start=1)
    ]
    if not reasons or not shown:
        return shown
    explained = []
    for one, parts in zip(shown, model.parts(rows, [row for row, _ in best], *when), strict=True):
        order = np.argsort(-np.array(parts.of_history), kind="stable")[:reasons].tolist()
        most = tuple(
            Reason(history[at], items[rows[at]].title, float(parts.of_history[at]))
            for at in order
            if parts.of_history[at] > 0
        )
        others = sum(parts.of_history) - sum(reason.part for reason in most)
        explained.append(one._replace(reasons=most, others=others, popular=parts.popular))
    return explained
