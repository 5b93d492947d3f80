"""A round costs what its clients touch, not clients × items."""

from __future__ import annotations

import resource

import numpy as np
import pytest
import torch

from solera.data.ragged import Ragged
from solera.data.sampling import ClientData
from solera.engine import BlockTraining, Simulation
from solera.methods import build


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fedmf", "pfedrec"])
def test_a_million_users_and_a_hundred_thousand_items(name):
    """Users of 20 items each; 20,000 of them a round. Clients × items would be 400 GB of floats."""
    users, items, each = 1_000_000, 100_000, 20
    step = np.random.default_rng(0).integers(1, items // each, (users, each))
    train = Ragged.of_lengths(np.full(users, each), np.cumsum(step, axis=1).ravel())
    method = build(name, {"clients_per_round": 20_000, "embedding_size": 16})
    simulation = Simulation(
        method, ClientData(train, train, items), BlockTraining(2), seed=0, device=torch.device("cpu")
    )
    result = simulation.run_round(0)
    assert result.clients == 20_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 4e6  # KiB
