"""One round of sums over histories: symmetric noise, a solve that stays stable, an exact ε."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from solera.core.closed_form import Channels
from solera.core.errors import ConfigError
from solera.dp.noise import Seeded, SeededNoise
from solera.dp.one_round import PrivateSum, make_positive
from solera.dp.settings import DP
from solera.runs import RunConfig, train


@pytest.mark.parametrize("n", [7, 700])
def test_noise_is_symmetric_and_that_of_the_mechanism_on_half_the_matrix(n: int) -> None:
    matrix = torch.zeros(n, n, dtype=torch.float64)
    SeededNoise(0, 0).cover_symmetric(matrix, 5.0, 1.0)
    assert torch.equal(matrix, matrix.T)
    diagonal, above = matrix.diagonal(), matrix[tuple(torch.triu_indices(n, n, 1))]
    assert float(diagonal.std()) == pytest.approx(5.0, rel=4 / math.sqrt(2 * n))
    assert float(above.std()) == pytest.approx(5 / math.sqrt(2), rel=4 / math.sqrt(2 * len(above)))


def test_what_is_added_to_the_diagonal_is_enough_for_noise_alone() -> None:
    """A total of nothing but noise is the worst there is."""
    n, std = 400, 3.0
    matrix = torch.zeros(n, n, dtype=torch.float64)
    SeededNoise(1, 0).cover_symmetric(matrix, std, 1.0)
    assert float(torch.linalg.eigvalsh(matrix)[0]) == pytest.approx(-std * math.sqrt(2 * n), rel=0.1)
    make_positive(matrix, std * math.sqrt(2 * n))
    assert float(torch.linalg.eigvalsh(matrix)[0]) > 0
    matrix = torch.diag(torch.tensor([1.0, -90.0], dtype=torch.float64))
    make_positive(matrix, 10.0)
    assert matrix.diagonal()[1] > 0


@pytest.mark.parametrize(
    ("dp", "std"),
    [({}, 6.0), ({"mode": "local"}, 60.0), ({"mode": "distributed", "dropout": 0.19}, 6.0 / 0.9)],
)
def test_who_adds_the_noise(dp: dict, std: float) -> None:
    made = PrivateSum(DP.model_validate({"noise": 2.0, "clip": 3.0, "delta": 1e-5} | dp), Seeded(0))
    assert made.std(100) == pytest.approx(std)
    total = torch.zeros(900, 600, dtype=torch.float64)
    made.release({"next": total}, {"next": Channels(1, 1)}, 100)
    assert float(total.std()) == pytest.approx(std, rel=0.01)


@pytest.mark.parametrize("method", ["fedease", "fedslist"])
def test_epsilon_is_that_of_one_gaussian_mechanism(small, method: str) -> None:
    """ε = 1.0 at σ = 1 and δ = Φ(−½) − e · Φ(−3/2) = 0.126936."""
    dp = {"noise": 1.0, "delta": 0.126936, "clip": 5.0}
    stated = train(
        RunConfig.model_validate({"method": method, "dataset": "x", "rounds": 1, "dp": dp}), small, threads=1
    ).result.privacy
    assert stated["epsilon"] == pytest.approx(1.0, abs=1e-5)
    assert (stated["accountant"], stated["rounds"]) == ("analytic", 1)
    assert stated["sampling"] == "none counted on"


@pytest.mark.parametrize("method", ["fedease", "fedslist"])
@pytest.mark.parametrize("noise", [1e-7, 1.0, 100.0])
def test_figures_are_those_without_noise_where_there_is_hardly_any_and_finite_where_there_is_much(
    small, method: str, noise: float
) -> None:
    fields = {"method": method, "dataset": "x", "rounds": 1}
    plain = train(RunConfig.model_validate(fields), small, threads=1)
    dp = {"noise": noise, "delta": 1e-5, "clip": 1000.0}
    noisy = train(RunConfig.model_validate(fields | {"dp": dp}), small, threads=1)
    weights = noisy._simulation.state.shared["weights"]
    assert bool(weights.isfinite().all())
    if noise < 1e-6:
        assert np.allclose(weights, plain._simulation.state.shared["weights"], atol=1e-3)
        assert noisy.test["full"]["hr@10"] == pytest.approx(plain.test["full"]["hr@10"], abs=0.02)
    else:
        assert not np.allclose(weights, plain._simulation.state.shared["weights"], atol=1e-3)


def test_an_adaptive_clip_needs_rounds(small) -> None:
    dp = {"noise": 1.0, "delta": 1e-5, "adaptive": 0.5}
    config = RunConfig.model_validate({"method": "fedease", "dataset": "x", "rounds": 1, "dp": dp})
    with pytest.raises(ConfigError, match="many rounds"):
        train(config, small, threads=1)


@pytest.mark.parametrize("symmetric", [True, False])
def test_a_threshold_leaves_what_is_more_than_noise(symmetric: bool) -> None:
    """Of noise alone, 1 − 0.9545 is beyond two standard deviations; a large number keeps its noise."""
    n, channels = 300, Channels(1, 1, symmetric=symmetric)
    total = torch.zeros(n, n, dtype=torch.float64)
    total[3, 5] = total[5, 3] = 1000.0
    kept, all_ = total.clone(), total.clone()
    for matrix, threshold in ((kept, 2.0), (all_, None)):
        dp = DP.model_validate({"noise": 2.0, "delta": 1e-5, "clip": 3.0, "threshold": threshold})
        PrivateSum(dp, Seeded(0)).release({"x": matrix}, {"x": channels}, 1)
    beside = ~torch.eye(n, dtype=torch.bool)
    assert float((kept[beside] != 0).double().mean()) == pytest.approx(0.0455, abs=0.003)
    assert kept[3, 5] == all_[3, 5] != 1000.0
    assert symmetric == bool((kept.diagonal() != 0).all())


def test_a_threshold_is_no_part_of_numbers_per_item() -> None:
    total = torch.zeros(500, 1, dtype=torch.float64)
    dp = DP.model_validate({"noise": 2.0, "delta": 1e-5, "threshold": 3.0})
    PrivateSum(dp, Seeded(0)).release({"counts": total}, {"counts": Channels(1, 1, width=1)}, 1)
    assert bool((total != 0).all())
