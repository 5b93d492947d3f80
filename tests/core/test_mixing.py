"""Sketches of tables, factored weights and projections of long rows, against the direct computations."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from solera.math import mixing
from solera.math.mixing import cosines, factored, onto_simplex, products, sketched


def randoms(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_a_sketch_of_a_small_table_only_changes_signs():
    """With fewer numbers than places, no two share a place."""
    tables = randoms(5, 10, 3)
    sketch = sketched(tables)
    assert torch.allclose(products(sketch), products(tables))
    assert torch.equal(sketch.flatten(1)[:, :30].abs(), tables.flatten(1).abs())


@pytest.mark.parametrize("d", [1, 16, 33])
def test_inner_products_of_sketches_are_off_by_two_percent(d):
    """Of independent numbers: one standard deviation is √(2 / 4096) of a squared length."""
    tables = randoms(60, 60_000 // d, d)
    exact, found = products(tables), products(sketched(tables))
    error = (found - exact).diagonal() / exact.diagonal()
    assert error.square().mean().sqrt() == pytest.approx((2 / 4096) ** 0.5, rel=0.35)
    assert abs(error.mean()) < 0.01


def test_factored_weights_mix_like_the_weights():
    near = torch.rand(300, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    weights = near @ near.T + 900 * torch.eye(300, dtype=torch.float64)
    weights /= weights.sum(1, keepdim=True)
    tables = randoms(300, 50)
    found = factored(weights)
    assert found is not None
    assert torch.allclose(found @ tables, weights @ tables, atol=1e-6)


def test_weights_without_structure_are_not_factored():
    weights = torch.rand(300, 300, generator=torch.Generator().manual_seed(2), dtype=torch.float64) ** 8
    assert factored(weights / weights.sum(1, keepdim=True)) is None


def test_factors_of_sketched_weights_add_nothing_to_the_error_of_the_sketches():
    """A graph of 600 clients in three groups, which looks random within a group."""
    groups = randoms(3, 2_000, 8, seed=3)[torch.arange(600) % 3]
    tables = groups + 4 * randoms(600, 2_000, 8, seed=4)

    def weights(compared: Tensor) -> Tensor:
        chosen = (cosines(compared) > 0.02).double()
        return chosen / chosen.sum(1, keepdim=True)

    exact, of_sketches = weights(tables), weights(sketched(tables))
    assert factored(of_sketches) is None
    factors = factored(of_sketches, of_sketches=True)
    assert factors is not None
    flat = tables.flatten(1)
    wanted = exact @ flat
    assert (factors @ flat - wanted).norm() <= (of_sketches @ flat - wanted).norm()


def test_projections_by_passes_are_those_by_sorting(monkeypatch):
    points = randoms(40, 500) / 10
    by_sorting = onto_simplex(points)
    monkeypatch.setattr(mixing, "LONG", 10)
    by_passes = onto_simplex(points)
    assert torch.allclose(by_passes, by_sorting, atol=1e-14)
    assert torch.allclose(by_passes.sum(1), torch.ones(40, dtype=torch.float64))
    assert (by_passes >= 0).all()
