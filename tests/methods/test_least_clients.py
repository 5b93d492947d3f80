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


def weights(known: list[list[int]], **options) -> np.ndarray:
    """[source, target]"""
    ragged = Ragged.from_lists(known)
    method = closed_form("fedease", {"neighbours": ITEMS} | options)
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
