"""Beyond accuracy: what a model recommends to all users together, in lists of their ten best items.

With lists of K items that are not in the user's history, c_i lists with item i, and n_i of U users with item
i in training, out of I items:

    coverage@K    = |{i : c_i > 0}| / I
    gini@K        = Σ_k (2k − I − 1) c_(k) / (I Σ_i c_i),  c_(1) ≤ … ≤ c_(I);  0: all items equally often
    popularity@K  = Σ_i c_i (n_i / U) / Σ_i c_i            mean share of users who have a recommended item
    novelty@K     = Σ_i c_i log2(U / max(n_i, 1)) / Σ_i c_i      in bits; an item nobody has counts as rare
    diversity@K   = mean of 1 − |U_i ∩ U_j| / √(n_i n_j) over all pairs of a list,  U_i the users with item i

The similarity of two items in `diversity` is the cosine of their training users, their co-occurrence; an item
without training users is similar to none. Diversity is of at most 1,000 users, a fixed sample.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from solera.core.types import Floats, Ints
from solera.data.ragged import Ragged

K = 10
NAMES = ("coverage", "gini", "popularity", "novelty", "diversity")
NO_ITEMS: Ints = np.zeros((0, K), np.int64)
DIVERSE = 1_000  # users whose lists are compared within
_USERS_AT_ONCE = 4096  # whose items are counted together


@dataclass(frozen=True, eq=False)
class Lists:
    """Lists of recommended items: how often each item is in one, and the lists of a sample of users."""

    train: Ragged  # items of every user
    n_items: int
    counts: Ints  # [n_items]
    users: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # of the sample
    items: Ints = field(default_factory=lambda: NO_ITEMS)  # theirs, -1 where there is none

    def joined(self, parts: Iterable[tuple[Ints, Ints, Ints]]) -> Lists:
        """The lists of several parts, each with its `counts`, `users` and `items`."""
        counts, users, items = zip(*parts, strict=True)
        total: Ints = np.sum(counts, axis=0)
        return replace(self, counts=total, users=np.concatenate(users), items=np.concatenate(items))

    @property
    def part(self) -> tuple[Ints, Ints, Ints]:
        """As `joined` takes it."""
        return self.counts, self.users, self.items

    @cached_property
    def metrics(self) -> dict[str, float]:
        """Every metric at the cutoff, e.g. `"coverage@10"`."""
        train = self.train.sorted_unique()
        have, all_users = np.bincount(train.values, minlength=self.n_items), len(train)
        shown = max(1, int(self.counts.sum()))
        found = (
            float(np.count_nonzero(self.counts) / self.n_items),
            gini(self.counts),
            float(self.counts @ (have / all_users) / shown),
            float(self.counts @ np.log2(all_users / np.maximum(have, 1)) / shown),
            self._diversity(train, have),
        )
        return {f"{name}@{K}": value for name, value in zip(NAMES, found, strict=True)}

    def _diversity(self, train: Ragged, have: Ints) -> float:
        first, second = np.triu_indices(self.items.shape[1], 1)
        one, other = self.items[:, first].ravel(), self.items[:, second].ravel()
        there = (one >= 0) & (other >= 0)
        if not there.any():
            return 0.0
        keys = np.minimum(one, other)[there] * self.n_items + np.maximum(one, other)[there]
        pairs, times = np.unique(keys, return_counts=True)
        i, j = np.divmod(pairs, self.n_items)
        cosine = together(train, i, j) / np.sqrt(np.maximum(have[i] * have[j], 1))
        return float(times @ (1 - cosine) / times.sum())


def best_items(scores: Tensor, known: Ragged) -> Ints:
    """The K best items of every row that are not in the row of `known`: [rows, K], -1 where there is none.

    Best first. Of items that tie, those with lower numbers come first.
    """
    free = scores.clone()
    free[torch.from_numpy(known.rows), torch.from_numpy(known.values).long()] = -torch.inf
    best, places = _top(free)
    found = np.full((len(places), K), -1, dtype=np.int64)
    found[:, : places.shape[1]] = torch.where(torch.isinf(best), -1, places).numpy()
    return found


def _top(scores: Tensor) -> tuple[Tensor, Tensor]:
    """The K largest scores of every row and their places, first places first if scores tie."""
    best, places = torch.topk(scores, min(K, scores.shape[1]))
    places, order = places.sort(1)
    best, order = best.gather(1, order).sort(dim=1, descending=True, stable=True)
    places = places.gather(1, order)
    # Of scores that tie for the last place, topk takes any.
    last = best[:, -1:]
    unsure = ((scores == last).sum(1) > (best == last).sum(1)).nonzero().squeeze(1)
    if len(unsure):
        ordered = scores[unsure].sort(dim=1, descending=True, stable=True)
        best[unsure], places[unsure] = ordered.values[:, :K], ordered.indices[:, :K]
    return best, places


def gini(counts: Ints) -> float:
    """The Gini coefficient: 0 if all are equal, near 1 if one has everything."""
    total, size = int(counts.sum()), len(counts)
    places = 2 * np.arange(1, size + 1) - size - 1
    return float(places @ np.sort(counts) / (size * total)) if total else 0.0


def together(train: Ragged, first: Ints, second: Ints) -> Floats:
    """How many users have both items of each pair. Every item has a bit for each of some users at a time."""
    items, place = np.unique(np.concatenate([first, second]), return_inverse=True)
    one, other = place[: len(first)], place[len(first) :]
    row_of = np.full(int(max(items.max(), train.values.max(initial=0))) + 1, -1, dtype=np.int64)
    row_of[items] = np.arange(len(items))
    found = np.zeros(len(first))
    for begin in range(0, len(train), _USERS_AT_ONCE):
        some = train.take(np.arange(begin, min(begin + _USERS_AT_ONCE, len(train))))
        rows, owners = row_of[some.values], some.rows
        wanted = rows >= 0
        has = np.zeros((len(items), len(some)), dtype=np.bool_)
        has[rows[wanted], owners[wanted]] = True
        bits = np.packbits(has, axis=1)
        found += np.bitwise_count(bits[one] & bits[other]).sum(1)
    return found
