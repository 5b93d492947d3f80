"""FedCIA: what a client sends, what the mean of it is, and where the steps towards it lead."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from solera.engine.reference import train_one_by_one
from solera.math.sketch import of_items
from solera.methods import build
from solera.methods.fedcia import AlignedTable, Steps, aligned
from solera.testing.toy import N_CLIENTS, run


def test_matrix(items: int, size: int) -> Tensor:
    return torch.from_numpy(of_items(np.arange(items), size)).double()


test_matrix.__test__ = False  # type: ignore[attr-defined]


def moved(tables: Tensor, sketch: Tensor, steps: Steps) -> Tensor:
    found = aligned(tables, sketch, steps)
    return tables @ found.own + sketch @ found.other


def test_what_is_sent_by_hand():
    """Q = ((1, 0), (2, 1)) has similarities ((1, 2), (2, 5))."""
    table = torch.tensor([[[1.0, 0.0], [2.0, 1.0]]], dtype=torch.float64)
    (sent,) = AlignedTable(2, 3).report({"items": table})["similarity"]
    assert torch.equal(sent, torch.tensor([[1.0, 2.0], [2.0, 5.0]], dtype=torch.float64) @ test_matrix(2, 3))


def test_two_steps_by_hand():
    """One item, d = 1, mean similarity 4: the gradient of (q² − 4)² / 8 is (q² − 4) q / 2.

    It is −1.5 at 1, so a step of size 0.1 leads to 1.15. There it is −1.5395625. With an L2 penalty of weight
    0.5 a step also takes off 0.05 q: to 1.1, where the gradient is −1.5345, and to 1.1 + 0.15345 − 0.055.
    """
    one, sketch = torch.ones(1, 1, 1, dtype=torch.float64), 4 * test_matrix(1, 1)
    assert moved(one, sketch, Steps(2, 0.1)).item() == pytest.approx(1.30395625, rel=1e-5)
    assert moved(one, sketch, Steps(2, 0.1, 0.5)).item() == pytest.approx(1.19845, rel=1e-5)


@pytest.mark.parametrize("size", [5, 20])
def test_steps_are_those_of_autograd(size):
    """On the matrix that the sketch stands for, which is exact if it is wider than there are items."""
    draw = torch.Generator().manual_seed(0)
    others = torch.randn(6, 9, 3, generator=draw, dtype=torch.float64)
    similarity = (others @ others.transpose(1, 2)).mean(0)
    omega = test_matrix(9, size)
    sketch = similarity @ omega
    core = omega.T @ sketch
    damped = core + 1e-6 * core.trace() * torch.eye(size)
    stands_for = sketch @ torch.linalg.solve(damped, sketch.T)
    if size > 9:
        torch.testing.assert_close(stands_for, similarity, rtol=1e-3, atol=1e-3)
    table = torch.randn(9, 3, generator=draw, dtype=torch.float64)
    expected = table.clone().requires_grad_()
    optimizer = torch.optim.SGD([expected], lr=0.1, weight_decay=0.02)
    for _ in range(15):
        optimizer.zero_grad()
        apart = torch.linalg.norm(expected @ expected.T - stands_for)
        (apart**2 / (2 * torch.linalg.norm(stands_for))).backward()
        optimizer.step()
    got = moved(table[None], sketch, Steps(15, 0.1, 0.02))[0]
    torch.testing.assert_close(got, expected.detach(), rtol=1e-7, atol=1e-7)


def test_nothing_moves_before_anybody_has_sent():
    table = torch.randn(2, 4, 3, dtype=torch.float64)
    assert torch.equal(moved(table, torch.zeros(4, 5, dtype=torch.float64), Steps(9, 0.1)), table)


def test_the_server_has_the_mean_of_what_clients_hold():
    """Uploads are not changes of what was sent before: the sketch of the mean similarity replaces the old."""
    options = {"embedding_size": 4, "sketch": 6, "align_steps": 3, "clients_per_round": 1.0}
    simulation = run(build("fedcia", options), train_one_by_one, rounds=2)
    tables = simulation.state.personal.tables["items"]
    assert len(tables) == N_CLIENTS
    mean = (tables @ tables.transpose(1, 2)).mean(0)
    torch.testing.assert_close(
        simulation.state.shared["similarity"], mean @ test_matrix(len(mean), 6), rtol=1e-10, atol=1e-10
    )
    assert not torch.equal(tables[0], tables[1])


def test_alignment_brings_clients_nearer_to_the_mean_similarity():
    near, far = (
        run(build("fedcia", {"embedding_size": 4, "sketch": 30, "align_steps": steps}), train_one_by_one)
        for steps in (50, 0)
    )

    def spread(simulation) -> float:
        tables = simulation.state.personal.tables["items"]
        similarities = tables @ tables.transpose(1, 2)
        return float((similarities - similarities.mean(0)).norm() / similarities.norm())

    assert spread(near) < spread(far)
