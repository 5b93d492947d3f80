"""What the papers prove, held against autograd and numerical solvers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from solera.core.context import Batch
from solera.math.mixing import onto_simplex
from solera.methods import build
from solera.methods.parts import inner


def user_gradient(p: torch.Tensor, q: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
    p = p.clone().requires_grad_()
    ones = torch.ones_like(r)
    loss = build("fedmf").batch_loss({"user": p, "items": q}, Batch(ones, r))
    (gradient,) = torch.autograd.grad(loss, [p])
    return gradient


def test_pfedclr_lemmas_3_1_and_3_2():
    """The user's gradient is Σ L1 q (3.1); aggregation adds Σ (L2 p·δ q + L1 δ), up to O(‖δ‖²) (3.2).

    L1 = σ(p·q) − r and L2 = σ'(p·q). Halving δ must quarter what the lemma leaves out.
    """
    draw = torch.Generator().manual_seed(0)
    p, q, direction = (torch.randn(s, generator=draw, dtype=torch.float64) for s in ((4,), (9, 4), (9, 4)))
    r = (torch.rand(9, generator=draw) < 0.4).double()
    sigma = torch.sigmoid(inner(p, q))
    first, second = sigma - r, sigma * (1 - sigma)
    assert torch.allclose(user_gradient(p, q, r), (first[:, None] * q).sum(0), atol=1e-12)

    def left_out(size: float) -> float:
        delta = size * direction
        skew = user_gradient(p, q + delta, r) - user_gradient(p, q, r)
        lemma = (second * inner(p, delta))[:, None] * q + first[:, None] * delta
        return float((skew - lemma.sum(0)).norm())

    assert left_out(1e-3) < 1e-4 * float(direction.norm())
    assert 3.9 < left_out(1e-3) / left_out(5e-4) < 4.1


def solved_numerically(p: np.ndarray, s: np.ndarray, alpha: float) -> np.ndarray:
    """SLSQP knows nothing of projections: it gets the objective, its gradient and the constraints."""
    from scipy.optimize import minimize

    found = minimize(
        lambda w: ((w - p) ** 2).sum() + alpha * ((w - s) ** 2).sum(),
        np.full(len(p), 1 / len(p)),
        jac=lambda w: 2 * (w - p) + 2 * alpha * (w - s),
        bounds=[(0, None)] * len(p),
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": np.ones_like},
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 500},
    )
    assert found.success, found.message
    return found.x


def test_fedem_equation_13_against_a_numerical_solver():
    """Σ (w − p)² + α Σ (w − s)² on the simplex: the projection is where a general solver ends up."""
    draw = np.random.default_rng(0)
    for alpha in (0.1, 0.9, 3.0):
        sizes, similarity = draw.integers(1, 200, 12), draw.random((12, 12)) ** 4
        p = sizes / sizes.sum()
        np.fill_diagonal(similarity, 1)
        found = onto_simplex(torch.from_numpy((p + alpha * similarity) / (1 + alpha))).numpy()
        for s, weights in zip(similarity, found, strict=True):
            np.testing.assert_allclose(weights, solved_numerically(p, s, alpha), atol=1e-6)
        assert (found == 0).any()  # some constraint binds, or the problem would be trivial


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=20))
def test_projections_onto_the_simplex(point):
    """On it, no farther than any corner, and a point of it stays where it is."""
    x = torch.tensor([point], dtype=torch.float64)
    found = onto_simplex(x)
    assert (found >= 0).all()
    assert abs(float(found.sum()) - 1) < 1e-9
    corners = torch.eye(len(point), dtype=torch.float64)
    assert float((found - x).norm()) <= float((corners - x).norm(dim=1).min()) + 1e-9
    assert torch.allclose(onto_simplex(found), found, atol=1e-9)


def test_plgc_trace_two_ways():
    """tr E Eᵀ over items is Σ of squared columns (Eq. 14); kept up to date, it is as from scratch."""
    draw = torch.Generator().manual_seed(0)
    table = torch.randn(30, 4, generator=draw, dtype=torch.float64)
    view: Any = build("plgc", {"embedding_size": 4}).view
    derived = view.derive({"items.local": table})["items.local.trace"]
    assert torch.allclose(derived, torch.trace(table @ table.T))
    touched = torch.tensor([3, 7, 8, 29])
    before = {"items.local": table[touched], "items.local.trace": derived}
    for _ in range(3):
        table[touched] += torch.randn(4, 4, generator=draw, dtype=torch.float64)
        now = before | {"items.local": table[touched]}
        assert torch.allclose(view.observe(before, now)["items.local.trace"], torch.trace(table @ table.T))
