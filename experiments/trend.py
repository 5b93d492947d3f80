"""Popularity at the time instead of overall popularity in FedSLIST, after TALE's trend-aware normalisation.

    python experiments/trend.py ml-100k decays=0.6,0.95 ridge=0.5 horizon=3 horizon_decay=0.5

n_j(t) is how often item j occurred in training histories in the `window` days up to t. Three uses of it are
compared with the division of scores by (1 + n_j)^g, where n_j is the number of all occurrences:

    targets  what comes next weighs (1 + n_j(t))^−g at its time t, in the sums of training
    served   scores are multiplied by (1 + n_j(t))^h, at the time t of the user's newest item
    both     scores are multiplied by (1 + n_j(t))^h / (1 + n_j)^g

S is the same in all, so it is factorised once, and only for users who are ranked. The best of each on
validation items is measured on test items. Histories are short enough here to be added up in one process.
"""

from __future__ import annotations

import sys
import time
from functools import cache
from itertools import product

import numpy as np
import torch
from scipy.sparse import coo_array
from torch import Tensor

from solera.core.arrays import Floats, Ints
from solera.core.next_items import memory_products, next_products
from solera.data.datasets import load
from solera.data.ragged import Ragged, days_of_all
from solera.data.split import Part, Split, history
from solera.evaluate import split

WINDOWS = (30.0, 365.0)
POWERS = (0.05, 0.15, 0.3, 0.5)
LEAST = 1e-3  # entries of T below this are left out
USERS = 1000  # ranked at most, of validation and of test


class Counts:
    """n_j(t) of training histories."""

    def __init__(self, train: Ragged, n_items: int) -> None:
        days = days_of_all(train)
        order = np.argsort(days, kind="stable")
        self.days, self.items, self.n_items = days[order], train.values[order], n_items

    def all(self, until: float, window: float) -> Floats:
        """n_j(t) of every item."""
        first, last = np.searchsorted(self.days, [until - window, until], side="right")
        return np.bincount(self.items[first:last], minlength=self.n_items).astype(float)

    def single(self, items: Ints, days: Floats, window: float) -> Floats:
        """n_j(t) of pairs of an item and a time, without the item itself."""
        key = self.items.astype(float) * 1e7 + (self.days - self.days[0])
        key.sort()
        at = items.astype(float) * 1e7 + (days - self.days[0])
        found = np.searchsorted(key, at, side="right") - np.searchsorted(key, at - window, side="right")
        return np.maximum(found - 1.0, 0.0)


def sums(
    train: Ragged, n_items: int, options: dict[str, str]
) -> tuple[Tensor, tuple[Ints, Ints, Floats, Ints]]:
    """S, and the entries of T: rows, columns, values, and the places in the training histories."""
    decays = tuple(map(float, options["decays"].split(",")))
    total = torch.zeros(len(decays) * n_items, len(decays) * n_items)
    flat, table = total.view(-1), []
    for client in np.flatnonzero(train.lengths > 1):
        items = train.row(int(client)).astype(np.int64)
        length, first = len(items), int(train.offsets[client])
        rows = (np.arange(len(decays))[:, None] * n_items + items).ravel()
        memories = memory_products(length, decays).reshape(len(rows), -1)
        flat.index_add_(
            0,
            torch.from_numpy((rows[:, None] * len(total) + rows).ravel()),
            torch.from_numpy(memories.ravel()).float(),
        )
        following = next_products(length, decays, int(options["horizon"]), float(options["horizon_decay"]))
        following = following.reshape(len(rows), length)
        one, other = np.nonzero(following > LEAST)
        table.append((rows[one], items[other], following[one, other], first + other))
    r, c, v, p = (np.concatenate(parts) for parts in zip(*table, strict=True))
    return total, (r, c, v, p)


def main(name: str, options: dict[str, str]) -> None:
    """Measure all variants on one data set."""
    options = {"horizon": "3", "horizon_decay": "0.5"} | options
    torch.set_num_threads(1)
    data, start = load(name), time.perf_counter()
    parts = split(data, "strict")
    n_items, decays = data.n_items, tuple(map(float, options["decays"].split(",")))
    memories, (rows, columns, values, places) = sums(parts.train, n_items, options)
    overall = (1 + memories.diagonal()[:n_items]).numpy().copy()
    memories.diagonal().add_(float(options["ridge"]) * float(memories.diagonal().mean()))
    factor = torch.linalg.cholesky(memories)
    del memories
    print(f"{name}: factorised after {time.perf_counter() - start:.0f} s", flush=True)
    counts, days = Counts(parts.train, n_items), days_of_all(parts.train)

    def following(weights: Floats, scale: Floats | float = 1.0) -> Floats:
        """Scores s A⁻¹ T of users, with the entries of T scaled."""
        table = coo_array((values * scale, (rows, columns)), shape=(len(decays) * n_items, n_items))
        return np.asarray((table.tocsr().T @ weights.T).T, np.float32)

    @cache
    def solved(part: Part) -> tuple[Ints, Floats, Floats, Floats]:
        """Users, s A⁻¹ of each, the day of the newest item, and scores without a popularity."""
        known = history(parts, part)
        users = np.flatnonzero(held_out(parts, part).lengths)
        users = np.sort(np.random.default_rng(0).permutation(users)[:USERS])
        memory = np.zeros((len(users), len(decays) * n_items), np.float32)
        for row, user in enumerate(users):
            items = known.row(int(user))
            for channel, decay in enumerate(decays):
                np.add.at(memory[row], channel * n_items + items, decay ** np.arange(len(items))[::-1])
        weights = torch.cholesky_solve(torch.from_numpy(memory).T, factor).T.numpy()
        newest = days_of_all(known)[known.offsets[1:][users] - 1]
        return users, weights, newest, following(weights)

    def measure(part: Part, kind: str, window: float, g: float, h: float) -> tuple[float, float]:
        users, weights, newest, scores = solved(part)
        if kind == "targets":
            scores = following(weights, (1 + counts.single(columns, days[places], window)) ** -g)
        if kind in ("overall", "both"):
            scores = scores * overall**-g
        if kind in ("served", "both"):
            scores = scores * np.stack([(1 + counts.all(day, window)) ** h for day in newest])
        return ranked(parts, part, users, scores)

    trials = [("overall", 0.0, g, 0.0) for g in (0.0, *POWERS)]
    trials += [("targets", w, g, 0.0) for w, g in product(WINDOWS, POWERS)]
    trials += [("served", w, 0.0, h) for w, h in product(WINDOWS, POWERS)]
    trials += [("both", w, g, h) for w, g, h in product(WINDOWS, POWERS, POWERS)]
    figures = {trial: measure("validation", *trial) for trial in trials}
    for kind in ("overall", "targets", "served", "both"):
        best = max((t for t in trials if t[0] == kind), key=lambda t: figures[t][1])
        cells = [
            " / ".join(f"{figure:.4f}" for figure in each) for each in (figures[best], measure("test", *best))
        ]
        print(f"| {name} | {best} | {cells[0]} | {cells[1]} |", flush=True)
    print(f"ended after {time.perf_counter() - start:.0f} s", flush=True)


def held_out(parts: Split, part: Part) -> Ragged:
    """Every user's held-out items."""
    return parts.validation if part == "validation" else parts.test


def ranked(parts: Split, part: Part, users: Ints, scores: Floats) -> tuple[float, float]:
    """HR@10 and NDCG@10 of the users' held-out items among all items that they do not have."""
    known, wanted = history(parts, part), held_out(parts, part)
    hits = []
    for user, row in zip(users, scores.copy(), strict=True):
        target = int(wanted.row(int(user))[0])
        score = row[target]
        row[known.row(int(user))] = -np.inf
        place = 1 + int((row > score).sum()) + int((row == score).sum() - 1) // 2
        hits.append(1 / np.log2(1 + place) if place <= 10 else 0.0)
    return float(np.mean(np.array(hits) > 0)), float(np.mean(hits))


if __name__ == "__main__":
    main(sys.argv[1], dict(pair.split("=") for pair in sys.argv[2:]))
