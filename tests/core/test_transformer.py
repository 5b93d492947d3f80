"""What a state of a transformer depends on, and its blocks by hand-derived numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from solera.core.leaf import Params
from solera.math.transformer import Dropout, Transformer, buckets, states

BLOCKS = ["sasrec", "ligr", "hstu"]


def network(block: Any, **options: Any) -> Transformer:
    return Transformer(block, **{"embedding_size": 8, "layers": 2, "heads": 2, "max_length": 7} | options)


def far_from_start(shape: Transformer, n_items: int = 20) -> Params:
    """Parameters with which items, places and biases matter."""
    params = shape.initial(n_items, seed=0)
    draw = torch.Generator().manual_seed(0)
    return {name: p + 0.5 * torch.randn(p.shape, generator=draw) for name, p in params.items()}


@pytest.mark.parametrize("block", BLOCKS)
def test_no_state_sees_later_items(block: str) -> None:
    shape = network(block)
    params = far_from_start(shape)
    items = torch.tensor([[3, 1, 4, 1, 5, 9, 2]])
    before = states(params, shape, items)
    assert before.shape == (1, 8, 8)
    for place in range(7):
        changed = items.clone()
        changed[0, place] = 7
        same = (states(params, shape, changed) - before).abs().amax(2)[0] < 1e-5
        assert same.tolist() == [state <= place for state in range(8)]


@pytest.mark.parametrize("block", BLOCKS)
def test_padding_and_company_do_not_matter(block: str) -> None:
    shape = network(block)
    params = far_from_start(shape)
    long, short = torch.tensor([[3, 1, 4, 1, 5]]), torch.tensor([[2, 6]])
    padded = torch.cat([short, torch.tensor([[0, 19, 0]])], 1)
    together = states(params, shape, torch.cat([long, padded]))
    assert torch.allclose(together[:1], states(params, shape, long), atol=1e-5)
    assert torch.allclose(together[1:, :3], states(params, shape, short), atol=1e-5)
    assert torch.allclose(together[:, 0], states(params, shape, torch.zeros(1, 0).long())[:, 0], atol=1e-5)


@pytest.mark.parametrize("block", BLOCKS)
def test_every_parameter_is_used(block: str) -> None:
    shape = network(block, intervals=block == "hstu")
    params = {name: p.requires_grad_() for name, p in far_from_start(shape).items()}
    times = torch.arange(8)[None] * 100
    found = states(params, shape, torch.arange(7)[None], times=times, asked=times)
    found.pow(3).sum().backward()
    assert [name for name, p in params.items() if p.grad is None or not p.grad.any()] == []


@pytest.mark.parametrize("block", BLOCKS)
def test_the_seed_decides_initial_values(block: str) -> None:
    shape = network(block)
    first, again, other = (shape.initial(20, seed) for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["items"], other["items"])
    assert first["items"].std().item() == pytest.approx(0.02, rel=0.1)


def alone(block: str, **values: float) -> Tensor:
    """The state after one item, with d = 2 and one block. Matrices are zero but for the given · identity."""
    shape = network(block, embedding_size=2, layers=1, heads=1, max_length=1, perceptron=1)
    params = {
        name: torch.zeros_like(p) if not name.endswith("_scale") else p
        for name, p in shape.initial(1, 0).items()
    }
    params["items"] = torch.tensor([[1.0, -1.0]]) / math.sqrt(2)
    for name, value in values.items():
        rows = torch.eye(2).repeat(len(params[name]) // 2, 1)
        params[name] = value * rows
    params["norm_scale"], params["norm_shift"] = torch.ones(2), torch.zeros(2)
    return states(params, shape, torch.zeros(1, 1).long())[0, 1]


def test_the_perceptron_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """norm(x) = ±1 for x = (1, −1); then x + 10 gelu(±1), without the last norm."""
    monkeypatch.setattr("solera.math.transformer._norm", lambda params, name, x: x)
    found = alone("sasrec", block0_perceptron_in=1.0, block0_perceptron_out=10.0)
    assert found.tolist() == pytest.approx([1 + 10 * 0.841345, -1 - 10 * 0.158655], rel=1e-4)


def test_the_gated_perceptron_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """σ(x) ⊙ 10 silu(x) x, with silu(1) = 0.731059 and silu(−1) = −0.268941."""
    monkeypatch.setattr("solera.math.transformer._norm", lambda params, name, x: x)
    gates = {"block0_perceptron_gate": 1.0}
    found = alone("ligr", block0_perceptron_in=1.0, block0_perceptron_out=10.0, **gates)
    wanted = [1 + 10 * 0.731059 * 0.731059, -1 + 10 * 0.268941 * 0.268941]
    assert found.tolist() == pytest.approx(wanted, rel=1e-4)


def test_the_aggregation_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """U = V = Q = K = silu(±1); the start has none, so V is scaled, normed to ±1 and times U."""
    monkeypatch.setattr("solera.math.transformer._norm", lambda params, name, x: x)
    found = alone("hstu", block0_in=1.0, block0_out=10.0)
    assert found.tolist() == pytest.approx([1 + 10 * 0.731059, -1 + 10 * 0.268941], rel=1e-3)


# HSTU's biases


def test_time_bias_responds_to_intervals_only() -> None:
    shape = network("hstu", intervals=True)
    params = far_from_start(shape)
    items = torch.tensor([[3, 1, 4]])
    times = torch.tensor([[10, 10, 500, 90_000]])
    found = states(params, shape, items, times=times, asked=times)
    shifted = states(params, shape, items, times=times + 1234, asked=times + 1234)
    assert torch.equal(found, shifted)
    later = states(params, shape, items, times=times, asked=times + torch.tensor([0, 0, 0, 1000_000]))
    same = (later - found).abs().amax(2)[0] < 1e-6
    assert same.tolist() == [True, True, True, False]


def test_buckets_by_hand() -> None:
    """ln 2 / 0.301 = 2.3 and ln 86400 / 0.301 = 37.8; the sign does not matter."""
    intervals = torch.tensor([0, 1, -1, 2, 86_400, -86_400, 10**18])
    assert buckets(intervals).tolist() == [0, 0, 0, 2, 37, 37, 127]


# Dropout


def test_dropout_keeps_the_mean() -> None:
    drop = Dropout(0.25, np.random.default_rng(0))
    out = drop(torch.ones(200, 200))
    assert out.unique().tolist() == pytest.approx([0, 4 / 3])
    assert (out == 0).float().mean().item() == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize("block", BLOCKS)
def test_dropout_is_drawn_from_its_generator(block: str) -> None:
    shape = network(block)
    params, items = far_from_start(shape), torch.tensor([[3, 1, 4]])
    first, again, other = (
        states(params, shape, items, drop=Dropout(0.5, np.random.default_rng(seed))) for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)
