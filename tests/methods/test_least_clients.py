"""FedEASE from the pairs that enough clients have, by numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from closed_forms import closed_form
from solera.core.errors import ConfigError
from solera.data.ragged import Ragged
from solera.data.sampling import ClientData
from solera.engine import OneRound
from solera.math.sparse_ridge import Neighbours
from solera.methods import find

ITEMS = 9


def histories(seed: int) -> list[list[int]]:
    draw = np.random.default_rng(seed)
    return [draw.permutation(ITEMS)[: draw.integers(1, ITEMS)].tolist() for _ in range(40)]


def weights(known: list[list[int]], name: str = "fedease", **options) -> np.ndarray:
    """[source, target]"""
    ragged = Ragged.from_lists(known)
    method = closed_form(name, {"neighbours": ITEMS} | options)
    made = OneRound(
        method, ClientData(ragged, ragged, ITEMS), device=torch.device("cpu"), dtype=torch.float64
    )
    made.run_round(0)
    found = Neighbours.of(made.state.shared, 1, torch.float64)
    one_item = torch.arange(ITEMS)
    return found.scores(one_item.numpy(), one_item.numpy(), torch.ones(ITEMS).double(), ITEMS).numpy()


@pytest.mark.parametrize("least", [1, 5, 9])
@pytest.mark.parametrize("newest", [0, 4])
def test_pairs_that_fewer_clients_have_are_zero(least, newest, reg=20.0):
    known = histories(3)
    x = np.zeros((len(known), ITEMS))
    for row, history in zip(x, known, strict=True):
        row[history[-newest:]] = 1
    gram = x.T @ x
    assert (gram < 9).any()
    gram[gram < least] = 0
    assert np.linalg.eigvalsh(gram).min() > -reg
    expected = np.zeros_like(gram)
    for item in range(ITEMS):
        others = np.flatnonzero((gram[item] > 0) & (np.arange(ITEMS) != item))
        system = gram[np.ix_(others, others)] + reg * np.eye(len(others))
        expected[others, item] = np.linalg.solve(system, gram[others, item])
    assert np.allclose(weights(known, least_clients=least, newest=newest, reg=reg), expected, atol=1e-9)


def test_an_indefinite_sum_is_solved():
    """Items 0 and 1 are each with 2 for 9 clients, and together for 8: without that the sum is indefinite."""
    known = [[0, 1, 2]] * 8 + [[0, 2], [1, 2]]
    x = np.zeros((len(known), ITEMS))
    for row, history in zip(x, known, strict=True):
        row[history] = 1
    gram = x.T @ x
    gram[gram < 9] = 0
    assert np.linalg.eigvalsh(gram + 1e-3 * np.eye(ITEMS)).min() < 0
    found = weights(known, least_clients=9, reg=1e-3)
    assert 0 < np.abs(found).max() < 2


def test_the_threshold_needs_neighbours():
    with pytest.raises(ConfigError, match="needs neighbours"):
        find("fedease", {"least_clients": 2})


ORDERED = {"compact": True, "decays": (0.6,), "horizon": 1, "ridge": 0.7}


@pytest.mark.parametrize("least", [1, 3])
def test_ordered_pairs_by_class_of_distance(least):
    """The formulas of the page, by numpy."""
    known, newest, decay = histories(5), 6, 0.6
    counts, own = np.zeros((4, ITEMS, ITEMS)), np.zeros(ITEMS)
    for history in known:
        short = history[-newest:]
        own[short] += 1
        for place, item in enumerate(short):
            for lag, other in enumerate(short[place + 1 :], 1):
                counts[{1: 0, 2: 1, 3: 2, 4: 2, 5: 3}[lag], item, other] += 1
    counts[counts < least] = 0
    assert least == 1 or (counts == 0).any()
    means = np.array([1, decay, (decay**2 + decay**3) / 2, decay**4])
    following = np.tensordot(means, counts, 1)
    memories = np.diag(own) + decay * (following + following.T)
    expected = np.zeros((ITEMS, ITEMS))
    for item in range(ITEMS):
        others = np.flatnonzero(following[:, item])
        system = memories[np.ix_(others, others)] + 0.7 * own.mean() * np.eye(len(others))
        expected[others, item] = (1 - decay**2) * np.linalg.solve(system, following[others, item])
    found = weights(known, "fedslist", **ORDERED, newest=newest, least_clients=least)
    assert np.allclose(found, expected, atol=1e-9)


def test_ordered_counts_need_a_sparse_form():
    with pytest.raises(ConfigError, match="needs compact=true and neighbours"):
        find("fedslist", {"least_clients": 2})
