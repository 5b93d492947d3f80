"""FedSLIST that sends T and item counts alone: the same regression, and less to protect."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from solera.core.closed_form import ClosedForm, Contribution
from solera.core.errors import ConfigError
from solera.dp.mechanism import Clip
from solera.engine.one_round import DenseSum
from solera.methods import find
from solera.methods.fedslist import RidgeOfDerived

N_ITEMS, DECAY, RIDGE = 9, 0.6, 0.3
HISTORIES = ([0, 1, 2, 3], [3, 1, 4, 1, 5], [2, 7], [8], [5, 6, 0, 2, 1, 4])


def compact(**options: object) -> ClosedForm:
    given = {"compact": True, "decays": (DECAY,), "horizon": 1, "ridge": RIDGE} | options
    method = find("fedslist", given)
    assert isinstance(method, ClosedForm)
    return method


def solved(method: ClosedForm, histories: tuple[list[int], ...] = HISTORIES) -> np.ndarray:
    totals = DenseSum(method, N_ITEMS)
    for history in histories:
        totals.add(method.update.of(np.array(history)))
    return totals.solve(torch.device("cpu"), torch.float64)["weights"].numpy()


def test_it_is_the_regression_on_memories_that_go_on_fading() -> None:
    """Written out one by one; a^400 is zero in doubles. The last, aimless steps have no next item."""
    left, right = np.zeros((N_ITEMS, N_ITEMS)), np.zeros((N_ITEMS, N_ITEMS))
    for history in HISTORIES:
        memory = np.zeros(N_ITEMS)
        for item in history:
            right[:, item] += memory
            memory = DECAY * memory
            memory[item] += 1
            left += np.outer(memory, memory)
        for _ in range(400):
            memory = DECAY * memory
            left += np.outer(memory, memory)
    occurred = np.bincount(np.concatenate(HISTORIES), minlength=N_ITEMS)
    reg = RIDGE * occurred.mean() / (1 - DECAY**2)
    expected = np.linalg.solve(left + reg * np.eye(N_ITEMS), right)
    assert np.allclose(solved(compact()), expected, atol=1e-12)


@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=40),
    st.sampled_from([0.0, 0.3, 0.9]),
    st.floats(0.01, 30),
)
def test_one_user_changes_the_sums_by_at_most_the_clip(history: list[int], decay: float, clip: float) -> None:
    """Over all numbers of T and n together, repeated items included; short ones are sent as they are."""
    part = compact(decays=(decay,)).update.of(np.array(history))
    before, after = length(part), length(Clip(clip).contribution(part))
    assert after <= clip * (1 + 1e-12)
    assert after == pytest.approx(min(before, clip))
    assert len(np.unique(part.items)) == len(part.items)


def test_the_length_of_a_contribution_by_hand() -> None:
    """Items 0, 1, 2: T has a^0 twice and a^1 once, n has 1 three times."""
    part = compact().update.of(np.array([0, 1, 2]))
    assert length(part) == pytest.approx(math.sqrt(2 + DECAY**2 + 3))


def test_a_popularity_prior_is_as_if_everybody_had_also_taken_items_by_popularity() -> None:
    """B is linear in T, so the prior adds (S + reg)⁻¹ n · c nᵀ / Σ n: rows in proportion to n."""
    added = solved(compact(popularity_prior=0.5)) - solved(compact())
    counts = np.bincount(np.concatenate(HISTORIES), minlength=N_ITEMS)
    left = added.sum(1)
    assert np.allclose(added, np.outer(left, counts / counts.sum()), atol=1e-12)
    assert np.allclose(added, (solved(compact(popularity_prior=1.0)) - solved(compact())) / 2, atol=1e-12)
    assert bool((left > 0).any())


def weights_of(method: ClosedForm, totals: dict[str, torch.Tensor]) -> torch.Tensor:
    assert isinstance(method.aggregate, RidgeOfDerived)
    return method.aggregate.solve(totals)


def test_without_pairs_items_are_in_the_order_of_popularity() -> None:
    counts = torch.tensor([[5.0], [1.0], [3.0]], dtype=torch.float64)
    nothing = {"next": torch.zeros(3, 3, dtype=torch.float64), "counts": counts}
    weights = weights_of(compact(popularity_prior=0.1), nothing)
    assert weights.argsort(1, descending=True).tolist() == [[0, 2, 1]] * 3


def test_a_total_of_noise_alone_is_solved() -> None:
    draw = np.random.default_rng(0)
    noise = {
        "next": torch.from_numpy(draw.normal(0, 100, (N_ITEMS, N_ITEMS))),
        "counts": torch.from_numpy(draw.normal(0, 100, (N_ITEMS, 1))),
    }
    assert bool(weights_of(compact(), noise).isfinite().all())


@pytest.mark.parametrize(
    "wrong", [{"decays": (0.5, 0.9)}, {"decays": (1.0,)}, {"horizon": 2}, {"neighbours": 5}]
)
def test_what_has_no_compact_form(wrong: dict) -> None:
    with pytest.raises(ConfigError, match="compact"):
        compact(**wrong)
    with pytest.raises(ConfigError, match="popularity_prior needs compact"):
        compact(compact=False, popularity_prior=1.0)


def length(part: Contribution) -> float:
    return math.sqrt(sum(float(np.square(block).sum()) for block in part.blocks.values()))
