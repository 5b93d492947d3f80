"""FedEM as its public code has it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

from solera.core.spec import Params
from solera.engine.block import BlockTraining
from solera.engine.reference import train_one_by_one
from solera.engine.simulation import LocalTraining
from solera.methods import build
from solera.testing.toy import N_CLIENTS, run

both_engines = pytest.mark.parametrize(
    "train", [train_one_by_one, BlockTraining(threads=1)], ids=["reference", "block"]
)
SMALL = {"embedding_size": 4, "local_epochs": 2, "negatives": 2, "batch_size": 24}
FEDEM = {**SMALL, "adapter": (4,), "form": "code", "server": "code"}


def after(name: str, options: dict[str, object], train: LocalTraining, rounds: int) -> Params:
    return run(build(name, options), train, rounds=rounds).state.personal.tensors()


@both_engines
def test_only_clients_with_a_new_table_train_their_adapter(train: LocalTraining) -> None:
    """The server makes tables for a tenth of the clients at the end of a round.

    So nobody has one in the first round, and two of 20 clients in the second and in the third.
    """
    runs = [run(build("fedem", FEDEM), train, rounds=rounds).state for rounds in range(4)]
    told = [state.shared["items.renewed"][:, 0] > 0 for state in runs]
    adapters = [state.personal.whole["adapter.1.bias"] for state in runs]
    moved = [(now != before).any(1) for before, now in pairwise(adapters)]
    assert N_CLIENTS == 20
    assert [int(clients.sum()) for clients in told] == [0, 2, 2, 2]
    assert [clients.tolist() for clients in moved] == [clients.tolist() for clients in told[:-1]]


def test_absent_clients_have_no_new_table() -> None:
    """Half of 20 clients take part in a round, and one of these ten has a new table afterwards."""
    state = run(build("fedem", {**FEDEM, "clients_per_round": 0.5}), train_one_by_one, rounds=3).state
    assert sorted(state.shared["items.renewed"][:, 0].tolist()) == [0.0] * 19 + [1.0]


def test_whoever_has_no_new_table_is_served_with_the_own_one() -> None:
    simulation = run(build("fedem", FEDEM), train_one_by_one, rounds=2)
    told = simulation.state.shared["items.renewed"][:, 0] > 0
    held = simulation.held(np.arange(N_CLIENTS))
    merged = simulation.method.view.see(held)
    same = (merged == held["items.local"]).flatten(1).all(1)
    assert same[~told].all()
    assert int(told.sum()) == 2


@both_engines
def test_clients_without_a_new_table_train_as_in_fedmf(train: LocalTraining) -> None:
    fedmf = after("fedmf", {**SMALL, "learning_rate": 0.1, "optimizer": "adam"}, train, 1)
    fedem = after("fedem", FEDEM, train, 1)
    assert torch.allclose(fedem["user"], fedmf["user"], rtol=1e-12, atol=0)
