"""PLGC's Table III: the regularizers by hand, and whatever an engine may do with a batch."""

from __future__ import annotations

import math
import sys
from itertools import product

import pytest
import torch
from torch import Tensor

from solera.core.context import Batch
from solera.methods import build
from solera.methods.plgc import (
    FromTableIII,
    Kind,
    alignment_and_uniformity,
    contrast,
    decorrelation,
)

KINDS: tuple[Kind, ...] = ("au", "duorec", "feddecorr")


def rows(*values: tuple[float, ...]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def even(n: int) -> Tensor:
    return torch.full((n,), 1 / n, dtype=torch.float64)


def test_alignment_and_uniformity_by_hand():
    """Rows of any length at right angles; the second item points the other way in the shared table.

    Alignment: half of 0 and half of 2². Uniformity: half of the pairs are of a row with itself, distance 0,
    the others have squared distance 2.
    """
    found = alignment_and_uniformity(rows((3, 0), (0, 2)), rows((1, 0), (0, -5)), even(2))
    assert float(found) == pytest.approx(2 + math.log((1 + math.exp(-4)) / 2))


def test_contrast_by_hand():
    """⟨c_i, g_k⟩ is 1 for i = k and 0 otherwise, in both directions."""
    eye = rows((1, 0), (0, 1))
    assert float(contrast(eye, eye, even(2))) == pytest.approx(math.log((math.e + 1) / 2) - 1)
    # Only c_1 with g_2 and g_1: 2 and 1; c_2 is zero.
    found = contrast(rows((1, 2), (0, 0)), eye, even(2))
    own = math.log((math.e + math.e**2) / 2) + 0.0
    other = math.log((math.e + 1) / 2) + math.log((math.e**2 + 1) / 2)
    assert float(found) == pytest.approx((own + other) / 4 - 1 / 2)


def test_decorrelation_by_hand():
    """Columns that are equal correlate by 1 everywhere, d² of d²; independent ones only with themselves."""
    alike = rows((1, 10), (-1, 8))
    apart = rows(*product((1.0, -1.0), (5.0, 3.0)))
    assert float(decorrelation(alike, alike, even(2))) == pytest.approx(1.0, rel=1e-6)
    assert float(decorrelation(apart, apart, even(4))) == pytest.approx(0.5, rel=1e-6)


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("kind", KINDS)
def test_repeated_items_may_be_merged(kind):
    """The engines see a repeated item as several rows, or as one row with the sum of their weights."""
    own, other = drawn(3, 4), drawn(6, 4)[3:]
    once = Batch(torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64), torch.zeros(3))
    twice = Batch(even(4), torch.zeros(4))
    places = torch.tensor([0, 0, 1, 2])
    part = FromTableIII(kind, 0.3)
    merged = part.loss({}, own, other, once)
    assert float(part.loss({}, own[places], other[places], twice)) == pytest.approx(float(merged))


@pytest.mark.parametrize("kind", KINDS)
def test_padding_changes_nothing(kind):
    own, other, zeros = drawn(3, 4), drawn(6, 4)[3:], torch.zeros(2, 4, dtype=torch.float64)
    part, weights = FromTableIII(kind, 0.3), even(3)
    padded = Batch(torch.cat([weights, torch.zeros(2, dtype=torch.float64)])[None], torch.zeros(1, 5))
    params = {"own": torch.cat([own, zeros])[None]}
    slope = part.gradient(params, "own", torch.cat([other, zeros])[None], padded)["own"][0]
    alone = part.gradient({"own": own[None]}, "own", other[None], Batch(weights[None], weights[None]))["own"]
    torch.testing.assert_close(slope[:3], alone[0])
    assert not slope[3:].any()


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_some_clients_at_a_time(kind, monkeypatch):
    own, other, weights = drawn(5, 3, 4), drawn(10, 3, 4)[5:], torch.full((5, 3), 1 / 3, dtype=torch.float64)
    part, batch = FromTableIII(kind, 1.0), Batch(weights, weights)
    whole = part.gradient({"own": own}, "own", other, batch)["own"]
    monkeypatch.setattr(sys.modules[FromTableIII.__module__], "_PAIRS", 18)
    assert torch.equal(part.gradient({"own": own}, "own", other, batch)["own"], whole)


@pytest.mark.parametrize("kind", KINDS)
def test_no_projector(kind):
    method = build("plgc", {"regularizer": kind})
    assert not [leaf for leaf in method.leaves if leaf.name.startswith(("projector", "predictor"))]
    assert method.update.label == "all together"
