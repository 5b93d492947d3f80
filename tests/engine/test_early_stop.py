"""Clients that stop early stop one by one, and end with what they had."""

from __future__ import annotations

import pytest
import torch

from solera.core.leaf import Params
from solera.engine.block import BlockTraining
from solera.engine.local_training import LocalTraining
from solera.engine.reference import train_one_by_one
from solera.engine.simulation import Simulation
from solera.methods import build
from solera.testing.toy import CPU, N_CLIENTS, SEED, held, toy_data

OPTIONS = {
    "embedding_size": 4,
    "batch_size": 24,
    "negatives": 2,
    "learning_rate": 0.05,
    "item_learning_rate": 4.0,
    "step_decay": 0.9,
}
EPOCHS = 5


def after_one_round(train: LocalTraining, **more: float) -> list[Params]:
    method = build("fedrap", OPTIONS | more)
    simulation = Simulation(method, toy_data(), train, seed=SEED, device=CPU, dtype=torch.float64)
    simulation.run_round(0)
    return [held(simulation, client) for client in range(N_CLIENTS)]


@pytest.mark.parametrize(
    "train", [train_one_by_one, BlockTraining(threads=1, block_samples=300)], ids=["reference", "block"]
)
def test_clients_stop_at_epochs_of_their_own(train: LocalTraining) -> None:
    """Every client ends like one that was told to train that many epochs, and not all train equally many."""
    stopped = after_one_round(train, local_epochs=EPOCHS, early_stop=0.05)
    by_epochs = [after_one_round(train, local_epochs=epochs) for epochs in range(1, EPOCHS + 1)]

    def epochs_of(client: int) -> int:
        alike = [
            number
            for number, clients in enumerate(by_epochs, start=1)
            if all(
                torch.allclose(clients[client][name], value, rtol=1e-12, atol=1e-14)
                for name, value in stopped[client].items()
            )
        ]
        assert len(alike) == 1, client
        return alike[0]

    trained = {epochs_of(client) for client in range(N_CLIENTS)}
    assert min(trained) >= 2  # there is nothing to compare the first epoch with
    assert len(trained) >= 3
