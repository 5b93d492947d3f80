"""The counter: it finds held-out items that are never drawn, and no others."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

from solera.baselines.counter import Counter, CounterConfig
from solera.data.interactions import Interactions
from solera.data.ragged import Ragged
from solera.evaluate import split
from solera.runs.baseline import run_baseline

TIES: tuple[Literal["none", "popularity"], ...] = ("none", "popularity")


def random_plays(users: int = 300, items: int = 500, rows: int = 20) -> Interactions:
    """Everybody plays different random items: there is nothing to learn."""
    draw = np.random.default_rng(0)
    chosen = [f"i{item}" for _ in range(users) for item in draw.choice(items, rows, replace=False)]
    return Interactions.from_columns("random", [f"u{n}" for n in range(users) for _ in range(rows)], chosen)


def test_under_strict_it_is_at_chance():
    found = run_baseline("counter", random_plays(users=2000), protocol="strict").test.sampled99
    assert found["hr@10"] == pytest.approx(0.1, abs=4 * (0.1 * 0.9 / 2000) ** 0.5)


def test_it_counts_what_a_run_draws():
    """The negatives of the rounds are those of every method with the same seed."""
    from solera.data.sampling import sample
    from solera.runs.federation import clients_of

    parts = split(random_plays(users=5), "strict")
    model = Counter.fit(parts, CounterConfig(rounds=2), 7)
    users = np.arange(5)
    by_hand = np.zeros((5, parts.data.n_items))
    for round_ in range(2):
        drawn = sample(clients_of(parts), users, 4, 7, round_).negatives
        for user, item in zip(drawn.rows, drawn.values, strict=True):
            by_hand[user, item] += 1
    assert (model.scores(users, parts.train).numpy() == -by_hand).all()


def test_popularity_only_breaks_ties():
    parts = split(random_plays(users=30), "strict")
    nobody = Ragged.of_lengths(np.zeros(30, np.int64), np.zeros(0, np.int64))
    users = np.arange(30)
    plain, ties = (
        Counter.fit(parts, CounterConfig(rounds=3, ties=which), 0).scores(users, nobody) for which in TIES
    )
    assert (ties.floor() == plain).all()
    popular = np.bincount(parts.train.values, minlength=parts.data.n_items)
    never = plain[0] == 0
    order = ties[0][never].argsort().numpy()
    assert (np.diff(popular[never.numpy()][order]) >= 0).all()
