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

import numpy as np

from solera.core.errors import ConfigError
from solera.core.types import Floats, Ints

NAMES = ("hr", "ndcg", "mrr", "recall")
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
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    ordered = ranks[np.lexsort((ranks, rows))]
    result: Floats = ordered + (np.arange(len(ranks)) - starts)
    return result


def per_user(places: Floats, counts: Ints, cutoffs: Sequence[int] = CUTOFFS) -> dict[str, Floats]:
    """Every metric at every cutoff for every user, e.g. `"ndcg@10"`.

    `places` is the output of the function `places`: user after user, best first. Every user must have at
    least one relevant item.
    """
    if not len(counts):
        return {f"{name}@{k}": np.zeros(0) for k in cutoffs for name in NAMES}
    starts = np.cumsum(counts) - counts
    best = places[starts]
    gains = 1.0 / np.log2(1.0 + places)
    ideal = np.cumsum(1.0 / np.log2(1.0 + np.arange(1, max(cutoffs) + 1)))
    result = {}
    for k in cutoffs:
        inside = places <= k
        result[f"hr@{k}"] = (best <= k).astype(np.float64)
        result[f"ndcg@{k}"] = np.add.reduceat(gains * inside, starts) / ideal[np.minimum(counts, k) - 1]
        result[f"mrr@{k}"] = np.where(best <= k, 1.0 / best, 0.0)
        result[f"recall@{k}"] = np.add.reduceat(inside.astype(np.float64), starts) / counts
    return result


def mean(values: dict[str, Floats]) -> dict[str, float]:
    """The mean of every metric over the users."""
    return {name: float(each.mean()) for name, each in values.items()}
