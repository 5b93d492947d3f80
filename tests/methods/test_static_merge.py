"""Static merging: what it comes to where nothing, or everything, is taken from the others."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from solera.data.ragged import Ragged
from solera.data.sampling import ClientData
from solera.engine import BlockTraining, Simulation
from solera.methods import build

ITEMS = 12


def trained(rows: list[list[int]], rounds: int, *plugins: str, **options) -> Simulation:
    method = build("fedmf", {"embedding_size": 4, "local_epochs": 2, **options}, plugins)
    lists = Ragged.from_lists(rows)
    simulation = Simulation(
        method,
        ClientData(lists, lists, ITEMS),
        BlockTraining(1),
        seed=3,
        device=torch.device("cpu"),
        dtype=torch.float64,
    )
    for number in range(rounds):
        simulation.run_round(number)
    return simulation


ROWS = [[0, 1, 2], [3, 4, 5, 6], [1, 7, 8]]


def test_with_weight_one_from_the_first_round_the_shared_table_is_fedmfs():
    plain = trained(ROWS, 3)
    merged = trained(ROWS, 3, "static-merge")
    torch.testing.assert_close(merged.state.tensors()[0]["items"], plain.state.tensors()[0]["items"])


@pytest.mark.parametrize("options", [{"merge_weight": 0.0}, {"aggregate_from": 4}])
def test_before_the_first_merge_nobody_learns_from_anybody(options):
    """What the others have makes no difference to the first client."""
    users = np.array([0])
    lists = Ragged.from_lists(ROWS)
    others = [ROWS[0], [9, 10, 11], [2, 5, 10, 11]]

    def scores(rows, rounds, **more):
        return trained(rows, rounds, "static-merge", **more).serve(lists)(users)

    assert np.array_equal(scores(ROWS, 3, **options), scores(others, 3, **options))
    assert not np.array_equal(scores(ROWS, 3), scores(others, 3))


def test_the_round_from_which_on_others_matter():
    users, others = np.array([0]), [ROWS[0], [9, 10, 11], [2, 5, 10, 11]]
    lists = Ragged.from_lists(ROWS)

    def scores(rows, rounds: int):
        return trained(rows, rounds, "static-merge", aggregate_from=3).serve(lists)(users)

    same = [np.array_equal(scores(ROWS, rounds), scores(others, rounds)) for rounds in (1, 2, 3)]
    assert same == [True, True, False]
