from __future__ import annotations

import numpy as np
import pytest
import torch

from solera.data.ragged import Ragged
from solera.data.sampling import ClientData
from solera.engine.block import BlockTraining
from solera.engine.local_training import LocalTraining
from solera.engine.reference import train_one_by_one
from solera.engine.simulation import Simulation
from solera.methods import build

# Every user may draw just one item as a negative: 3, 0 and 3.
DATA = ClientData(
    Ragged.from_lists([[0], [3], [1, 2]]), Ragged.from_lists([[0, 1, 2], [1, 2, 3], [0, 1, 2]]), n_items=4
)
SAMPLES = [([0, 3], [1, 0]), ([3, 0], [1, 0]), ([1, 2, 3, 3], [1, 1, 0, 0])]
OPTIONS = {
    "embedding_size": 2,
    "negatives": 1,
    "local_epochs": 1,
    "rebuild_epochs": 1,
    "rebuild_learning_rate": 0.5,
    "learning_rate": 0.1,
}
both_engines = pytest.mark.parametrize(
    "train", [train_one_by_one, BlockTraining(threads=1)], ids=["reference", "block"]
)


def simulate(train: LocalTraining) -> Simulation:
    method = build("fedrecon", OPTIONS)
    return Simulation(method, DATA, train, seed=0, device=torch.device("cpu"), dtype=torch.float64)


@both_engines
def test_the_vector_does_not_depend_on_earlier_rounds(train):
    one, two = simulate(train), simulate(train)
    one.run_round(0)
    # Another past of the clients, the same table.
    two.restore(one.state.shared, {"user": torch.full((3, 2), 9.0, dtype=torch.float64)})
    assert not torch.equal(one.state.personal.whole["user"], two.state.personal.whole["user"])
    one.run_round(1)
    two.run_round(1)
    assert torch.equal(one.state.personal.whole["user"], two.state.personal.whole["user"])
    assert torch.equal(one.state.shared["items"], two.state.shared["items"])


@both_engines
def test_one_round(train):
    """Adam's first step is its rate times the sign of the gradient.

    Step 1, with x_i = ⟨p, q_i⟩: the gradient by p is Σ (σ(x_i) − y_i) q_i / n, so p moves by 0.5 against its
    sign. Step 2, with the p just found: that by q_i is (σ(x_i) − y_i) p / n, whose sign is that of p for
    negatives and of −p for positives, so q_i moves by 0.1 · sign(p) towards p if positive, away if not.
    The server weighs the users' changes by 1, 1 and 2 training items.
    """
    simulation = simulate(train)
    start = simulation.state.personal.whole["user"][0].numpy().copy()
    items = simulation.state.shared["items"].numpy().copy()
    simulation.run_round(0)
    change, users = np.zeros((4, 2)), []
    for (rows, labels), weight in zip(SAMPLES, [1, 1, 2], strict=True):
        x = items[rows] @ start
        gradient = (1 / (1 + np.exp(-x)) - labels) @ items[rows]
        user = start - 0.5 * np.sign(gradient)
        moved = dict(zip(rows, labels, strict=True))
        for row, label in moved.items():
            change[row] += weight * 0.1 * (2 * label - 1) * np.sign(user)
        users.append(user)
    expected = items + change / 4
    got_users, got_items = simulation.state.personal.whole["user"], simulation.state.shared["items"]
    assert got_users.numpy() == pytest.approx(np.array(users), abs=1e-6)  # Adam's ε
    assert got_items.numpy() == pytest.approx(expected, abs=1e-6)
    # Served with the vector last rebuilt.
    torch.testing.assert_close(simulation.scores(np.arange(3)), got_users @ got_items.T)
