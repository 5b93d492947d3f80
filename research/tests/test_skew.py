"""The quantities of PFedCLR's and FedEM's lemmas: by hand, and what the lemmas say of them."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from solera_research.figures.skew import accumulated_bound, deviation, local_optimum, user_skew

REG = 0.05


def one(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def drawn(seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A user vector, own rows, shared rows and labels."""
    draw = torch.Generator().manual_seed(seed)
    user, own, apart = (torch.randn(s, generator=draw, dtype=torch.float64) for s in ((4,), (9, 4), (9, 4)))
    return user, own, own + apart, (torch.rand(9, generator=draw) < 0.4).double()


def test_skew_by_hand():
    """p = 1, q = 0, g = 0.2, a positive: σ = 1/2, L1 = −1/2, L2 = 1/4.

    No gradient and no scaling, as q = 0; a shift of L1 δ = −0.1; the skew itself is (σ(0.2) − 1) 0.2. The
    calibration is −η L1² p.
    """
    found = user_skew(one(1.0), one(0.0)[None], one(0.2)[None], one(1.0), 0.1)
    skew = (1 / (1 + math.exp(-0.2)) - 1) * 0.2
    assert [float(each) for each in found] == pytest.approx([0, skew, 0, -0.1, -0.025])


def test_scaling_and_shift_are_the_skew_for_small_differences():
    """Halving δ quarters what is left out (Lemma 3.2)."""
    user, own, shared, labels = drawn()

    def left_out(part: float) -> float:
        found = user_skew(user, own, own + part * (shared - own), labels, 0.1)
        return float((found.skew - found.scaling - found.shift).norm())

    assert 3.9 < left_out(1e-3) / left_out(5e-4) < 4.1


def test_calibration_is_what_a_step_of_the_buffer_changes():
    """The buffer's rows start at zero and take one step, w_i = −η L1 p; then the gradient by p, as in Eq. 27,
    changes by the calibration (Lemma 4.1), up to η². The lemma also counts w among the rows.
    """
    user, own, _, labels = drawn()

    def left_out(rate: float) -> float:
        first = torch.sigmoid(own @ user) - labels
        buffered = own - rate * first.unsqueeze(1) * user
        change = (torch.sigmoid(buffered @ user) - labels) @ buffered - first @ own
        return float((change - user_skew(user, own, own, labels, rate).calibration).norm())

    assert 3.9 < left_out(1e-3) / left_out(5e-4) < 4.1


def test_bound_of_the_accumulated_skew_by_hand():
    """p = (2, 0), q = (3, 4), δ = (1, 0): ‖δ‖ + |⟨p, δ⟩| ‖q‖ / 4 = 1 + 2.5; times 0.1, over 1 − 1/2."""
    user, own, shared = one(2.0, 0.0), one(3.0, 4.0)[None], one(4.0, 4.0)[None]
    assert accumulated_bound(user, own, shared, 0.1, 0.5) == pytest.approx(0.7)
    assert accumulated_bound(user, own, shared, 0.1, 1.0) == math.inf


def test_a_skew_is_within_the_bound():
    """One round of it, where the differences are small enough for the lemma's approximation."""
    for seed in range(20):
        user, own, shared, labels = drawn(seed)
        shared = own + 1e-3 * (shared - own)
        skew = user_skew(user, own, shared, labels, 0.1).skew
        assert 0.1 * float(skew.norm()) <= accumulated_bound(user, own, shared, 0.1, 0.0)


def test_the_optimum_has_no_gradient():
    user, _, _, labels = drawn()
    best = local_optimum(user, labels, REG)
    slope = (torch.sigmoid(best @ user) - labels).unsqueeze(1) * user + REG * best
    assert float(slope.abs().max()) < 1e-12


def test_deviation_by_hand():
    """p = 0: no score depends on Q, so Q* = 0 and ∇L(Q) = μ Q. Q = 1 and G = 3, μ = 0.05.

    A = 0.05, for G 0.05 · 9; C = 0.05 · (1 + 2) + 0.05 · 2 · (1 + 2).
    """
    found = deviation(one(0.0), one(1.0)[None], one(3.0)[None], one(1.0), REG)
    assert list(found) == pytest.approx([0.05, 0.45, 0.45, 0.05 / 0.5])


@pytest.mark.slow
def test_lemma_2_holds_and_lemma_1_does_not():
    """⟨∇L(M), M − Q*⟩ ≥ (1 − ρ) A − ρ C for M = Q + ρ δ, and so it is positive below the limit.

    Of the shared rows, Lemma 1 says that the product may be negative; a convex loss never has that.
    """
    for seed in range(30):
        user, own, shared, labels = drawn(seed)
        found = deviation(user, own, shared, labels, REG)
        best = local_optimum(user, labels, REG)
        assert 0 < found.limit < 1
        assert found.shared >= REG * float((shared - best).square().sum())
        for rho in (0.1, 0.5, 1.0):
            merged = own + rho * (shared - own)
            of_merged = deviation(user, merged, shared, labels, REG).own
            assert of_merged >= (1 - rho) * found.own - rho * found.deviation
