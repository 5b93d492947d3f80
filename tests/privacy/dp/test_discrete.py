"""Exact discrete Gaussian noise: its probabilities, its sums, and what it does to sums of floats."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from solera.dp.accounting import Releases, epsilon
from solera.dp.discrete import LARGEST, discrete_gaussian, uniform
from solera.dp.noise import SystemNoise


def probabilities(sigma: float, most: int) -> np.ndarray:
    weights = np.exp(-(np.arange(-40 * math.ceil(sigma), 40 * math.ceil(sigma) + 1) ** 2) / (2 * sigma**2))
    middle = len(weights) // 2
    return weights[middle - most : middle + most + 1] / weights.sum()


def distance(drawn: np.ndarray, expected: np.ndarray) -> tuple[float, int]:
    """χ² of the counts from −m to m, and how many there are."""
    most = len(expected) // 2
    counts = np.array([(drawn == k).sum() for k in range(-most, most + 1)])
    wanted = expected * len(drawn)
    return float(((counts - wanted) ** 2 / wanted).sum()), len(counts)


@pytest.mark.parametrize("sigma", [1, 2, 3, 7])
def test_every_whole_number_has_its_probability(sigma):
    """χ² of n counts has mean n − 1 and variance 2(n − 1); a bound at 7 standard deviations."""
    found, n = distance(discrete_gaussian(sigma, 200_000), probabilities(sigma, 3 * sigma))
    assert found < n - 1 + 7 * math.sqrt(2 * n)


@pytest.mark.parametrize("sigma", [1000, 2**20, 2**32, LARGEST])
def test_a_large_one_is_nearly_normal(sigma):
    drawn, n = discrete_gaussian(sigma, 100_000) / sigma, 100_000
    assert drawn.mean() == pytest.approx(0, abs=6 / math.sqrt(n))
    assert drawn.var() == pytest.approx(1, abs=6 * math.sqrt(2 / n))
    assert (drawn**4).mean() == pytest.approx(3, abs=6 * math.sqrt(96 / n))
    assert (np.abs(drawn) <= 1).mean() == pytest.approx(math.erf(math.sqrt(0.5)), abs=6 * 0.5 / math.sqrt(n))


def test_no_draw_repeats_another():
    assert not np.array_equal(discrete_gaussian(1000, 50), discrete_gaussian(1000, 50))


@pytest.mark.parametrize("sigma", [0, -1, LARGEST + 1])
def test_what_cannot_be_drawn(sigma):
    with pytest.raises(ValueError, match="whole number"):
        discrete_gaussian(sigma, 1)


def test_uniform_numbers_below_any_number():
    counts = np.bincount(uniform(5, 100_000), minlength=5)
    assert len(counts) == 5
    assert np.abs(counts - 20_000).max() < 6 * math.sqrt(20_000)
    limits = np.array([1, 2, 3, 2**40])
    assert (uniform(limits, 4) < limits).all()


def test_a_sum_of_shares_is_as_good_as_one():
    """Five shares of σ = 4 against one of √5 · 4: no probability differs by what a test could see."""
    drawn = np.sum([discrete_gaussian(4, 200_000) for _ in range(5)], axis=0)
    found, n = distance(drawn, probabilities(4 * math.sqrt(5), 24))
    assert found < n - 1 + 7 * math.sqrt(2 * n)


@pytest.mark.parametrize(("std", "value"), [(2.68, 0.3), (1e-6, 0.3), (50.0, 1e5)])
def test_sums_become_multiples_of_one_step(std, value):
    """Whatever is covered: no bit below the step, and the noise is what it should be."""
    n = 50_000
    covered = SystemNoise().cover(torch.full((n,), value, dtype=torch.float64), std, 1.0)
    step = math.ldexp(1.0, math.frexp(std)[1] - 32)
    assert bool(((covered / step) == (covered / step).round()).all())
    added = (covered - value) / std
    assert float(added.mean()) == pytest.approx(0, abs=6 / math.sqrt(n))
    assert float(added.var()) == pytest.approx(1, abs=6 * math.sqrt(2 / n) + 1e-3)


def test_a_symmetric_matrix_stays_symmetric():
    n, std = 700, 3.0
    matrix = torch.zeros(n, n, dtype=torch.float64)
    SystemNoise().cover_symmetric(matrix, std, 1.0)
    assert torch.equal(matrix, matrix.T)
    above = matrix[tuple(torch.triu_indices(n, n, 1))]
    assert float(above.var()) == pytest.approx(std**2 / 2, rel=6 * math.sqrt(2 / len(above)))
    assert float(matrix.diagonal().var()) == pytest.approx(std**2, rel=6 * math.sqrt(2 / n))


def test_moments_of_discrete_noise_are_those_of_normal_noise():
    """What the accounting rests on: E_P[(P(x − μ) / P(x))^k] = exp((k² − k) μ² / 2σ²), for whole μ and k."""
    sigma, shift = 3.0, 2
    x = np.arange(-60, 61)  # far enough, and no probability is too small for a double
    p, moved = (np.exp(-((x - at) ** 2) / (2 * sigma**2)) for at in (0, shift))
    p, moved = p / p.sum(), moved / moved.sum()
    for order in (2, 3, 5, 8):
        found = float((p * (moved / p) ** order).sum())
        assert found == pytest.approx(math.exp((order**2 - order) * shift**2 / (2 * sigma**2)), rel=1e-9)


def test_epsilon_of_a_sampled_discrete_mechanism_is_not_too_small():
    """Against the exact divergence of one number, in both directions, by summation: δ(ε) ≤ δ."""
    sigma, rate, delta = 4.0, 0.25, 1e-5
    x = np.arange(-200, 201)
    p, moved = (np.exp(-((x - at) ** 2) / (2 * sigma**2)) for at in (0, 4))
    p, moved = p / p.sum(), moved / moved.sum()
    mixed = (1 - rate) * p + rate * moved
    stated = epsilon(1.0, Releases(rate, 1), delta, "rdp")
    for one, other in ((mixed, p), (p, mixed)):
        assert float(np.maximum(one - math.exp(stated) * other, 0).sum()) <= delta
