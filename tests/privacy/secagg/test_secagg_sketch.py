"""Sketches: linear, exact where they can be, better the larger, and the same through the masks."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from solera.math.sketch import signs, symmetric_from
from solera.privacy.secagg import Part, Stage, make_setup, run_round

N_ITEMS = 30
HISTORIES = st.lists(
    st.lists(st.integers(0, N_ITEMS - 1), min_size=1, max_size=8, unique=True).map(np.array),
    min_size=1,
    max_size=12,
)


def sketched(items, test) -> np.ndarray:
    """What a client sends: x xᵀ Ω, at its own items the sum of their rows of Ω."""
    sketch = np.zeros((N_ITEMS, test.shape[1]))
    sketch[items] = test[items].sum(0)
    return sketch


def gram(histories) -> np.ndarray:
    marks = np.zeros((len(histories), N_ITEMS))
    for row, items in zip(marks, histories, strict=True):
        row[items] = 1
    return marks.T @ marks


@given(HISTORIES, st.integers(1, 20), st.integers(0, 99))
def test_the_sum_of_sketches_is_the_sketch_of_the_sum(histories, size, seed):
    test = signs(N_ITEMS, size, seed)
    total = sum(sketched(items, test) for items in histories)
    assert np.array_equal(total, gram(histories) @ test)  # whole numbers: equal, not nearly


def test_test_matrices_are_of_signs_and_by_seed():
    test = signs(200, 50, seed=3)
    assert set(np.unique(test)) == {-1, 1}
    assert abs(test.mean()) < 0.05
    assert np.array_equal(test, signs(200, 50, seed=3))
    assert not np.array_equal(test, signs(200, 50, seed=4))


@given(HISTORIES, st.integers(0, 99))
def test_a_sum_of_few_clients_comes_back_exactly(histories, seed):
    """Its rank is at most the number of clients, 12."""
    whole = gram(histories)
    test = signs(N_ITEMS, 24, seed)
    assert np.allclose(symmetric_from(whole @ test, test), whole, atol=1e-5)


def test_nothing_of_nothing():
    test = signs(N_ITEMS, 4, 0)
    assert not symmetric_from(np.zeros((N_ITEMS, 4)), test).any()


def slowly_falling(n: int = 120) -> np.ndarray:
    """A symmetric matrix with eigenvalues 1, 1/2, 1/3 …"""
    basis, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(n, n)))
    return (basis / np.arange(1, n + 1)) @ basis.T


def test_what_is_lost_falls_with_the_size_and_keeps_the_bound():
    """The mean over test matrices, and 1 + k / (size − k − 1) times the tail from k on, for the best k."""
    whole = slowly_falling()
    tails = np.cumsum((1 / np.arange(1, 121))[::-1])[::-1]  # from k on
    lost = []
    for size in (10, 20, 40, 80):
        errors = []
        for seed in range(10):
            test = signs(120, size, seed)
            left = whole - symmetric_from(whole @ test, test)
            eigenvalues = np.linalg.eigvalsh(left)
            assert eigenvalues[0] > -1e-9  # Ĝ never exceeds G
            errors.append(eigenvalues.sum())
        bound = min((1 + k / (size - k - 1)) * tails[k] for k in range(size - 1))
        assert tails[size] < np.mean(errors) < bound
        lost.append(np.mean(errors))
    assert lost == sorted(lost, reverse=True)


def test_sketches_are_summed_under_masks_exactly(identities):
    """Twenty histories, three of which drop out: the server has the sketch of the others' sum, to the bit."""
    rng = np.random.default_rng(1)
    histories = [rng.choice(N_ITEMS, int(rng.integers(1, 9)), replace=False) for _ in range(20)]
    test = signs(N_ITEMS, 25, seed=7)
    part = Part(name="gram", length=N_ITEMS * 25, clip=8, fraction_bits=0)
    setup = make_setup(identities, 14, [part])
    inputs = [{"gram": sketched(items, test)} for items in histories]
    outcome = run_round(setup, identities, inputs, dict.fromkeys((0, 5, 9), Stage.MASK))
    kept = [histories[c] for c in outcome.survivors]
    assert len(kept) == 17
    total = outcome.total["gram"].reshape(N_ITEMS, 25)
    assert np.array_equal(total, gram(kept) @ test)
    assert np.allclose(symmetric_from(total, test), gram(kept), atol=1e-5)  # rank 17 < 25
