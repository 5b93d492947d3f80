from __future__ import annotations

from math import exp, log
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from solera.core.context import Batch
from solera.methods.parts import BinaryCrossEntropy

TOLERANCE: dict[str, Any] = {"rtol": 1e-12, "atol": 1e-14}


def binary_cross_entropy(logits: Tensor, weights: Tensor, positives: Tensor) -> Tensor:
    return BinaryCrossEntropy().value(logits, Batch(weights, positives))


def binary_cross_entropy_slope(logits: Tensor, weights: Tensor, positives: Tensor) -> Tensor:
    return BinaryCrossEntropy().slope(logits, Batch(weights, positives))


def case(*shape: int, seed: int = 0, spread: float = 3) -> tuple[Tensor, Tensor, Tensor]:
    """Logits, labels of 0 and 1, and weights that sum to 1."""
    draw = torch.Generator().manual_seed(seed)
    logits = spread * torch.randn(shape, dtype=torch.float64, generator=draw)
    labels = torch.randint(2, shape, generator=draw).double()
    weights = torch.rand(shape, dtype=torch.float64, generator=draw)
    return logits.requires_grad_(), labels, weights / weights.sum(-1, keepdim=True)


@pytest.mark.parametrize("spread", [0.1, 3, 30])
@pytest.mark.parametrize("shape", [(1,), (7,), (3, 50), (2, 3, 4)])
def test_value_gradient_and_slope_are_torchs(shape: tuple[int, ...], spread: float) -> None:
    logits, labels, weights = case(*shape, spread=spread)
    ours = binary_cross_entropy(logits, weights, labels * weights)
    theirs = binary_cross_entropy_with_logits(logits, labels, weights, reduction="none").sum(-1)
    assert ours.shape == shape[:-1]
    torch.testing.assert_close(ours, theirs, **TOLERANCE)
    above = torch.rand(shape[:-1], dtype=torch.float64)
    (our_gradient,) = torch.autograd.grad(ours, logits, above)
    (their_gradient,) = torch.autograd.grad(theirs, logits, above)
    torch.testing.assert_close(our_gradient, their_gradient, **TOLERANCE)
    slope = binary_cross_entropy_slope(logits.detach(), weights, labels * weights)
    torch.testing.assert_close(slope * above.unsqueeze(-1), their_gradient, **TOLERANCE)


@pytest.mark.parametrize("shape", [(6,), (3, 5)])
def test_gradient_is_that_of_the_value(shape: tuple[int, ...]) -> None:
    logits, labels, weights = case(*shape, seed=1)
    assert torch.autograd.gradcheck(lambda x: binary_cross_entropy(x, weights, labels * weights), (logits,))


@pytest.mark.parametrize("logit", [19.0, 21.0, 30.0])
def test_a_sure_answer_still_has_a_gradient(logit: float) -> None:
    """Label 0 at −x, label 1 at x: ±σ(−x), which is small and not 0.

    torch's softplus gives it up from 20 on; with the large steps of PFedRec's items that is seen.
    """
    logits = torch.tensor([-logit, logit], dtype=torch.float64, requires_grad=True)
    weights, positives = torch.ones(2, dtype=torch.float64), torch.tensor([0.0, 1.0], dtype=torch.float64)
    (gradient,) = torch.autograd.grad(binary_cross_entropy(logits, weights, positives), logits)
    expected = 1 / (1 + exp(logit))
    for got in (gradient, binary_cross_entropy_slope(logits.detach(), weights, positives)):
        assert got.tolist() == pytest.approx([expected, -expected], rel=1e-3, abs=1e-15)


def test_one_client_by_hand() -> None:
    """Logits 0 and ln 3, labels 1 and 0, weights 1/4 and 3/4.

    Loss: ln 2 / 4 + 3 ln 4 / 4. Gradient: (1/2 − 1) / 4 = −1/8 and (3/4 − 0) · 3/4 = 9/16.
    """
    logits = torch.tensor([0.0, log(3)], dtype=torch.float64, requires_grad=True)
    weights = torch.tensor([0.25, 0.75], dtype=torch.float64)
    positives = torch.tensor([0.25, 0.0], dtype=torch.float64)
    loss = binary_cross_entropy(logits, weights, positives)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert float(loss.detach()) == pytest.approx(log(2) / 4 + 3 * log(4) / 4, rel=1e-15)
    assert gradient.tolist() == pytest.approx([-1 / 8, 9 / 16], rel=1e-15)
    slope = binary_cross_entropy_slope(logits.detach(), weights, positives)
    assert slope.tolist() == pytest.approx([-1 / 8, 9 / 16], rel=1e-15)


def test_samples_of_one_item_may_stand_as_one() -> None:
    """Three samples of one logit, one of them positive, or one sample of their added weights."""
    weights = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    positives = torch.tensor([0.0, 0.3, 0.0], dtype=torch.float64)
    three = torch.full((3,), 0.7, dtype=torch.float64)
    apart = binary_cross_entropy(three, weights, positives)
    together = binary_cross_entropy(three[:1], weights.sum(-1, keepdim=True), positives.sum(-1, keepdim=True))
    torch.testing.assert_close(together, apart, **TOLERANCE)
    slopes = binary_cross_entropy_slope(three, weights, positives)
    slope = binary_cross_entropy_slope(
        three[:1], weights.sum(-1, keepdim=True), positives.sum(-1, keepdim=True)
    )
    torch.testing.assert_close(slope, slopes.sum(-1, keepdim=True), **TOLERANCE)


def test_weight_0_counts_for_nothing() -> None:
    logits, labels, weights = case(4)
    nothing = torch.zeros(2, dtype=torch.float64)
    padded = torch.cat([logits.detach(), torch.tensor([50.0, -50.0])]).requires_grad_()
    more = torch.cat([weights, nothing]), torch.cat([labels * weights, nothing])
    loss = binary_cross_entropy(padded, *more)
    (gradient,) = torch.autograd.grad(loss, padded)
    expected = float(binary_cross_entropy(logits, weights, labels * weights).detach())
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-15)
    assert gradient[4:].tolist() == [0, 0]
    assert binary_cross_entropy_slope(padded.detach(), *more)[4:].tolist() == [0, 0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_large_logits_stay_finite(dtype: torch.dtype) -> None:
    logits = torch.tensor([1000.0, -1000.0, 1000.0, -1000.0], dtype=dtype, requires_grad=True)
    weights = torch.full((4,), 0.25, dtype=dtype)
    positives = torch.tensor([0.25, 0.0, 0.0, 0.25], dtype=dtype)
    loss = binary_cross_entropy(logits, weights, positives)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert float(loss.detach()) == 500
    assert gradient.tolist() == [0, 0, 0.25, -0.25]
    assert binary_cross_entropy_slope(logits.detach(), weights, positives).tolist() == [0, 0, 0.25, -0.25]


def test_nothing_handed_in_is_changed() -> None:
    logits, labels, weights = case(5)
    handed = [logits.detach(), weights, labels * weights]
    before = [tensor.clone() for tensor in handed]
    binary_cross_entropy(*handed)
    binary_cross_entropy_slope(*handed)
    assert all(torch.equal(*pair) for pair in zip(handed, before, strict=True))


def test_a_clients_gradient_is_its_own() -> None:
    """Summing the losses of a block gives every client its own gradient."""
    logits, labels, weights = case(3, 5, seed=2)
    positives = labels * weights
    (together,) = torch.autograd.grad(binary_cross_entropy(logits, weights, positives).sum(), logits)
    for client in range(3):
        own = logits[client].detach().requires_grad_()
        (alone,) = torch.autograd.grad(binary_cross_entropy(own, weights[client], positives[client]), own)
        assert torch.equal(together[client], alone)
