"""Scores with the shared table and corrections are those with a whole table for every client."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from solera.core.leaf import MEMORY
from solera.core.method import Method
from solera.data.ragged import Ragged
from solera.data.sampling import ClientData
from solera.engine import Simulation, store
from solera.engine.block import BlockTraining
from solera.methods import find, names

N_ITEMS, N_CLIENTS = 30, 12
FEDERATED = [name for name in names() if isinstance(find(name), Method)]


def trained(name: str) -> Simulation:
    """A federation after two rounds, in which half of the clients took part."""
    draw = np.random.default_rng(5)
    histories = Ragged.from_lists(
        [draw.choice(N_ITEMS, 3 + user % 5, replace=False).tolist() for user in range(N_CLIENTS)]
    )
    data = ClientData(histories, histories.sorted_unique(), N_ITEMS)
    method = find(name, {"embedding_size": 4, "clients_per_round": 0.5})
    assert isinstance(method, Method)
    made = Simulation(
        method, data, BlockTraining(threads=1), seed=1, device=torch.device("cpu"), dtype=torch.float64
    )
    for round_ in range(2):
        made.run_round(round_)
    return made


def dense(simulation: Simulation, clients: np.ndarray) -> torch.Tensor:
    params = simulation.held(clients)
    scorer = simulation.method.scorer
    if scorer.learns_from != "items":
        params[MEMORY] = simulation._memory(simulation.data.train.take(clients))
    with torch.no_grad():
        found = simulation.method.score(params)
    return found.expand(len(clients), N_ITEMS)


@pytest.mark.parametrize("table_bytes", [store.TABLE_BYTES, 0], ids=["tables", "rows"])
@pytest.mark.parametrize("name", FEDERATED)
def test_scores_are_those_of_whole_tables(name, table_bytes, monkeypatch):
    if not table_bytes and name.startswith("fedem"):
        pytest.skip("the simulated server of fedem needs whole tables")
    monkeypatch.setattr(store, "TABLE_BYTES", table_bytes)
    simulation = trained(name)
    for clients in (np.arange(N_CLIENTS), np.array([7, 2, 2, 11])):
        expected = dense(simulation, clients)
        found = simulation.scores(clients)
        assert found.shape == (len(clients), N_ITEMS)
        assert torch.allclose(found, expected, rtol=1e-12, atol=1e-12)
