"""The losses of next items, by hand-derived numbers and against each other."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from solera.math.losses import (
    gbce_loss,
    gbce_power,
    sampled_softmax_loss,
    softmax_loss,
)


def batch() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    return (
        torch.randn(50, 6, requires_grad=True),
        torch.randn(11, 6, requires_grad=True),
        torch.randint(11, (50,)),
    )


STATE = torch.tensor([[1.0, 0.0]])
ITEMS = torch.tensor([[math.log(2), 9.0], [math.log(3), 9.0], [0.0, 9.0], [math.log(4), 9.0]])


def test_softmax_and_its_gradient_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("solera.math.losses.CHUNK", 77)  # seven states at a time, one in the last
    states, items, targets = batch()
    wanted = cross_entropy(states @ items.T, targets)
    got = softmax_loss(states, items, targets)
    assert got.item() == pytest.approx(wanted.item(), rel=1e-6)
    pairs = zip(*(torch.autograd.grad(3 * loss, (states, items)) for loss in (got, wanted)), strict=True)
    assert all(torch.allclose(ours, theirs, atol=1e-6) for ours, theirs in pairs)


def test_softmax_by_hand() -> None:
    """Scores e^s are 2, 3, 1 and 4."""
    assert softmax_loss(STATE, ITEMS, torch.tensor([1])).item() == pytest.approx(-math.log(3 / 10))


def test_sampled_softmax_by_hand() -> None:
    """The target's 3 against twice the sum of 2 and 1; the target among the negatives counts for nothing."""
    got = sampled_softmax_loss(STATE, ITEMS, torch.tensor([1]), torch.tensor([0, 2]))
    assert got.item() == pytest.approx(-math.log(3 / (3 + 2 * 3)))
    got = sampled_softmax_loss(STATE, ITEMS, torch.tensor([1]), torch.tensor([1, 2]))
    assert got.item() == pytest.approx(-math.log(3 / (3 + 2 * 1)))


def test_sampled_softmax_of_all_items_is_the_softmax() -> None:
    states, items, targets = batch()
    whole = softmax_loss(states, items, targets)
    sampled = sampled_softmax_loss(states, items, targets, torch.arange(11))
    assert sampled.item() == pytest.approx(whole.item(), rel=1e-6)
    pairs = zip(*(torch.autograd.grad(loss, (states, items)) for loss in (sampled, whole)), strict=True)
    assert all(torch.allclose(ours, theirs, atol=1e-6) for ours, theirs in pairs)


def test_the_only_negative_may_be_the_target() -> None:
    states, items, _ = batch()
    loss = sampled_softmax_loss(states, items, torch.full((50,), 4), torch.tensor([4]))
    assert loss.item() == 0
    assert not torch.autograd.grad(loss, states)[0].any()


def test_the_power_of_gbce_by_hand() -> None:
    """α = 2/8: 1 without calibration, α with all of it, and 1/4 (3/4 · (1 − 4) + 4) = 7/16 in between."""
    assert gbce_power(2, 9, 0.0) == pytest.approx(1)
    assert gbce_power(2, 9, 1.0) == pytest.approx(0.25)
    assert gbce_power(2, 9, 0.75) == pytest.approx(7 / 16)


def test_gbce_by_hand() -> None:
    """σ is 3/4 for the target, 2/3 and 1/2 for two negatives of three others; α = 2/3, so β = 5/6."""
    got = gbce_loss(STATE, ITEMS, torch.tensor([1]), torch.tensor([0, 2]), 0.5)
    assert got.item() == pytest.approx(-(5 / 6 * math.log(3 / 4) + math.log(1 / 3) + math.log(1 / 2)))


def test_the_target_is_not_its_own_negative_in_gbce() -> None:
    got = gbce_loss(STATE.requires_grad_(), ITEMS, torch.tensor([1]), torch.tensor([1, 2]), 0.5)
    assert got.item() == pytest.approx(-(5 / 6 * math.log(3 / 4) + math.log(1 / 2)))
    assert torch.autograd.grad(got, STATE)[0].isfinite().all()
