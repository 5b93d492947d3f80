"""The inverse by factors is the inverse."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from solera.math.linear import low_rank_factor, ridge_inverse, without_diagonal


def gram(clients: int, items: int, seed: int = 0) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    histories = (torch.rand(clients, items, generator=draw) < 0.1).double()
    return histories.T @ histories


@given(st.integers(1, 60), st.integers(1, 90), st.floats(0.1, 1e3), st.integers(0, 9))
def test_ridge_inverse_is_the_inverse_whatever_the_rank(clients, items, reg, seed):
    matrix = gram(clients, items, seed)
    expected = torch.linalg.inv(matrix + reg * torch.eye(items).double())
    torch.testing.assert_close(ridge_inverse(matrix.clone(), reg), expected, rtol=1e-8, atol=1e-10)


def test_few_clients_are_factored_and_many_are_not():
    few = low_rank_factor(gram(50, 900))
    assert few is not None
    assert len(few) == 50
    torch.testing.assert_close(few.T @ few, gram(50, 900), rtol=1e-9, atol=1e-9)
    assert low_rank_factor(gram(2000, 900)) is None


def test_equal_rows_and_empty_items_do_not_disturb():
    histories = torch.zeros(400, 700).double()
    histories[:, 10:40] = 1.0  # everybody the same
    histories[0, 60] = 1.0
    factor = low_rank_factor(histories.T @ histories)
    assert factor is not None
    assert len(factor) == 2


def test_ease_by_hand():
    """Two items, always together but once: G = [[2, 1], [1, 1]], reg 1: P ∝ [[2, −1], [−1, 3]]."""
    weights = without_diagonal(torch.tensor([[2.0, 1.0], [1.0, 1.0]]), 1.0)
    assert weights.tolist() == [[0.0, pytest.approx(1 / 3)], [pytest.approx(1 / 2), 0.0]]
