"""What the papers prove, held against autograd."""

from __future__ import annotations

import torch

from solera.core.context import Batch
from solera.core.parts import inner
from solera.methods import build


def user_gradient(p: torch.Tensor, q: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
    p = p.clone().requires_grad_()
    ones = torch.ones_like(r)
    loss = build("fedmf").loss({"user": p, "items": q}, Batch(ones, r))
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
