from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from solera.core.context import RoundContext
from solera.core.errors import ConfigError
from solera.core.types import Ints
from solera.data.ragged import Ragged
from solera.data.sampling import ClientData
from solera.engine.local_training import ClientResult, LocalTraining, Task
from solera.engine.reference import train_one_by_one
from solera.engine.simulation import Simulation
from solera.methods import build
from solera.methods.colr import basis

POSITIVES = Ragged.from_lists([[0, 1], [2, 3, 4], [5]])
DATA = ClientData(POSITIVES, POSITIVES, n_items=12)
OPTIONS = {"embedding_size": 6, "rank": 2, "local_epochs": 3, "learning_rate": 0.1}


def context(round_: int, seed: int = 0) -> RoundContext:
    return build("colr", OPTIONS).context(round_, 12, seed)


def simulate(name: str, options: dict, results: list[ClientResult]) -> Simulation:
    class Recorded(LocalTraining):
        def __call__(self, task: Task, clients: Ints) -> Iterator[ClientResult]:
            for result in train_one_by_one(task, clients):
                results.append(result)
                yield result

    cpu = torch.device("cpu")
    return Simulation(build(name, options), DATA, Recorded(), seed=0, device=cpu, dtype=torch.float64)


@pytest.mark.parametrize("row_mean", [False, True])
def test_server_adds_the_mean_of_the_clients_products(row_mean: bool):
    """Q + Σ_u A_u B / n, where A_u has rows of zeros for what client u did not touch.

    n is 3, or for every item the number of clients that touched it.
    """
    results: list[ClientResult] = []
    simulation = simulate("colr", OPTIONS | {"row_mean": row_mean}, results)
    for round_ in range(3):
        results.clear()
        before = simulation.state.shared["items"].clone()
        simulation.run_round(round_)
        products, touched = [], torch.zeros(12, 1, dtype=torch.float64)
        for result in results:
            touched[result.upload.rows] += 1
            factor = torch.zeros(12, 2, dtype=torch.float64)
            factor[result.upload.rows] = result.upload.changes["factor"]
            products.append(factor @ basis(6, 2, context(round_)))
        assert {1.0, 2.0} <= set(touched.flatten().tolist())
        divisor = touched.clamp(min=1) if row_mean else 3
        expected = before + torch.stack(products).sum(0) / divisor
        torch.testing.assert_close(simulation.state.shared["items"], expected, rtol=1e-12, atol=1e-12)
        assert torch.linalg.matrix_rank(simulation.state.shared["items"] - before, atol=1e-9) == 2
        assert not simulation.state.shared["factor"].any()
        users, items = simulation.state.personal.whole["user"], simulation.state.shared["items"]
        torch.testing.assert_close(simulation.scores(np.arange(3)), users @ items.T)


def test_only_the_factor_travels():
    """A row is its number and two floats instead of six: 12 bytes instead of 28."""
    plain = {name: OPTIONS[name] for name in ("embedding_size", "local_epochs", "learning_rate")}
    results: list[ClientResult] = []
    sent = simulate("colr", OPTIONS, results).run_round(0).bytes_up
    assert {name for result in results for name in result.upload.changes} == {"factor"}
    assert sent * 28 == pytest.approx(simulate("fedmf", plain, []).run_round(0).bytes_up * 12)


def test_basis():
    """Orthogonal rows of length √(d / r), new ones in every round."""
    first, second = basis(6, 2, context(0)), basis(6, 2, context(1))
    torch.testing.assert_close(first @ first.T, 3 * torch.eye(2, dtype=torch.float64))
    assert torch.equal(first, basis(6, 2, context(0)))
    assert not torch.equal(first, basis(6, 2, context(0, seed=1)))
    assert not torch.allclose(first, second)


def test_rank_above_the_length_of_an_item_vector():
    with pytest.raises(ConfigError, match="rank 7"):
        build("colr", {"embedding_size": 6, "rank": 7})
