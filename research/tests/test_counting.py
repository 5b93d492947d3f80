"""The counter finds held-out items that are never drawn as often as the formula says."""

from __future__ import annotations

from math import log2

import numpy as np
import pytest

from solera.baselines.counter import CounterConfig
from solera.data.interactions import Interactions
from solera.evaluate import split
from solera.runs.baseline import run_baseline
from solera_research.leak import found_by_counting


def random_plays(users: int = 300, items: int = 500, rows: int = 20) -> Interactions:
    """Everybody plays different random items: there is nothing to learn."""
    draw = np.random.default_rng(0)
    chosen = [f"i{item}" for _ in range(users) for item in draw.choice(items, rows, replace=False)]
    return Interactions.from_columns("random", [f"u{n}" for n in range(users) for _ in range(rows)], chosen)


@pytest.mark.parametrize(("rounds", "rows"), [(100, 20), (20, 20), (20, 8), (3, 20)])
def test_the_formula_predicts_what_is_measured(rounds, rows):
    """Of random plays, at several strengths of the leak: within four standard errors."""
    data = random_plays(users=600, rows=rows)
    run = run_baseline("counter", data, protocol="paper", options={"rounds": rounds})
    law = found_by_counting(split(data, "paper"), CounterConfig(rounds=rounds))
    for metric, value in law.items():
        error = max(0.0, value * (1 - value) / 600) ** 0.5  # at most, of a figure between 0 and 1
        assert run.test_train.sampled99[metric] == pytest.approx(value, abs=4 * error + 1e-9)


def test_the_formula_by_hand():
    """Six items: u draws 2 times from 2 items and v once from 3, in one round with one negative."""
    users, items = ["u"] * 4 + ["v"] * 3, [f"i{n}" for n in (0, 1, 2, 3, 0, 4, 5)]
    data = Interactions.from_columns("toy", users, items)
    law = found_by_counting(split(data, "paper"), CounterConfig(rounds=1, negatives=1), candidates=1)
    missed = ((1 - 1 / 2) ** 2 + (1 - 1 / 3)) / 2
    assert law["ndcg@10"] == pytest.approx((1 - missed) + missed / log2(2.5))  # alone, or two share 1 and 2
    assert law["hr@10"] == pytest.approx(1)
