"""Ranking metrics, computed from the places of the held-out items in a user's list.

For a user with n relevant items at places p_1 ≤ … ≤ p_n (the top of the list is place 1):

    HR@K     = 1 if p_1 ≤ K, else 0
    MRR@K    = 1/p_1 if p_1 ≤ K, else 0
    recall@K = |{j : p_j ≤ K}| / n
    NDCG@K   = Σ_{j : p_j ≤ K} 1/log2(1 + p_j)  /  Σ_{j=1..min(K, n)} 1/log2(1 + j)

Places may be fractional: an item that ties with others gets the middle of their places. A constant scorer
therefore gets neither the best nor the worst of all orders, however the items are numbered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np

from solera.core.errors import ConfigError
from solera.core.extensions import import_extensions
from solera.core.types import Floats, Ints

CUTOFFS = (5, 10, 20, 50)
ALWAYS = 10  # the cutoff of the tables, computed whatever else is asked for


def with_always(cutoffs: Iterable[int]) -> tuple[int, ...]:
    """Cutoffs in order, with the one that every table shows."""
    found = tuple(sorted({*cutoffs, ALWAYS}))
    if found[0] < 1:
        raise ConfigError(f"{found[0]} is not a cutoff", "give positive numbers, for example 5,10,20")
    return found


def places(ranks: Floats, counts: Ints) -> Floats:
    """Convert ranks among the irrelevant items to places in the list: p_j = r_j + (j − 1), best first.

    `ranks` has user after user, `counts[u]` values each. A relevant item does not compete with the
    user's other ones for its rank, but two items cannot have the same place in a list.
    """
    rows = np.repeat(np.arange(len(counts)), counts)
    starts = np.repeat(_starts(counts), counts)
    ordered = ranks[np.lexsort((ranks, rows))]
    result: Floats = ordered + (np.arange(len(ranks)) - starts)
    return result


class Metric(Protocol):
    """A metric with a name, such as `ndcg`. More is better, because the round with the most is selected."""

    @property
    def name(self) -> str:
        """The name before the @."""

    def measure(self, places: Floats, counts: Ints, k: int) -> Floats:
        """The metric at cutoff k, one value for every user.

        `places` has the places of user after user, best first, and `counts` how many each user has, at
        least one. `per_user_sum` adds something up over a user's places.
        """


class HitRate:
    """Whether one of the relevant items is among the first k."""

    name = "hr"

    def measure(self, places: Floats, counts: Ints, k: int) -> Floats:
        """1 if p_1 ≤ k, else 0."""
        return (_best(places, counts) <= k).astype(np.float64)


class NDCG:
    """Normalised discounted cumulative gain."""

    name = "ndcg"

    def measure(self, places: Floats, counts: Ints, k: int) -> Floats:
        """The discounted gains, relative to those of the best order."""
        ideal = np.cumsum(1.0 / np.log2(1.0 + np.arange(1, k + 1)))
        found: Floats = per_user_sum(1.0 / np.log2(1.0 + places) * (places <= k), counts)
        found /= ideal[np.minimum(counts, k) - 1]
        return found


class MRR:
    """Reciprocal rank of the best relevant item."""

    name = "mrr"

    def measure(self, places: Floats, counts: Ints, k: int) -> Floats:
        """1/p_1 if p_1 ≤ k, else 0."""
        best = _best(places, counts)
        return np.where(best <= k, 1.0 / best, 0.0)


class Recall:
    """Share of the relevant items that are among the first k."""

    name = "recall"

    def measure(self, places: Floats, counts: Ints, k: int) -> Floats:
        """|{j : p_j ≤ k}| / n."""
        return per_user_sum((places <= k).astype(np.float64), counts) / counts


METRICS: dict[str, Metric] = {each.name: each for each in (HitRate(), NDCG(), MRR(), Recall())}
BUILT_IN = tuple(METRICS)


def register_metric(metric: Metric) -> None:
    """Register your own metric, for every evaluation. Registering the name again replaces it."""
    if metric.name in BUILT_IN:
        raise ConfigError(f"{metric.name!r} is one of Solera's own metrics", "give yours another name")
    METRICS[metric.name] = metric


def known_metrics() -> dict[str, Metric]:
    """All metrics by name, Solera's own first."""
    import_extensions("metrics")
    return METRICS


def per_user_sum(values: Floats, counts: Ints) -> Floats:
    """The sum of every user's values; `values` has user after user, `counts[u]` values each."""
    found: Floats = np.add.reduceat(values, _starts(counts))
    return found


def per_user(places: Floats, counts: Ints, cutoffs: Sequence[int] = CUTOFFS) -> dict[str, Floats]:
    """Every metric at every cutoff for every user, e.g. `"ndcg@10"`.

    `places` is the output of the function `places`: user after user, best first. Every user must have at
    least one relevant item.
    """
    known = known_metrics().values()
    if not len(counts):
        return {f"{metric.name}@{k}": np.zeros(0) for k in cutoffs for metric in known}
    found = {f"{metric.name}@{k}": metric.measure(places, counts, k) for k in cutoffs for metric in known}
    for name, values in found.items():
        if np.shape(values) != counts.shape or not np.isfinite(values).all():
            raise ConfigError(
                f"the metric {name} did not return one finite number for each of {len(counts)} users",
                "mend its function `measure`",
            )
    return found


def _starts(counts: Ints) -> Ints:
    return np.cumsum(counts) - counts


def _best(places: Floats, counts: Ints) -> Floats:
    return places[_starts(counts)]


def mean(values: dict[str, Floats]) -> dict[str, float]:
    """The mean of every metric over the users."""
    return {name: float(each.mean()) for name, each in values.items()}
