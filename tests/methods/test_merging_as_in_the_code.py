"""FedEM as its public code has it, and FedNCF as that of FedEA, which preceded it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from solera.core.errors import ConfigError
from solera.core.leaf import Params
from solera.engine.block import BlockTraining
from solera.engine.local_training import LocalTraining
from solera.engine.reference import train_one_by_one
from solera.methods import build
from solera.methods.fedem import Merged
from solera.testing.toy import N_CLIENTS, run

both_engines = pytest.mark.parametrize(
    "train", [train_one_by_one, BlockTraining(threads=1)], ids=["reference", "block"]
)
SMALL = {"embedding_size": 4, "local_epochs": 2, "negatives": 2, "batch_size": 24}
FEDEM = {**SMALL, "adapter": (4,), "form": "code", "server": "code"}


def after(name: str, options: dict[str, Any], train: LocalTraining, rounds: int) -> Params:
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
def test_merging_starts_with_the_given_weight_for_every_item(train: LocalTraining) -> None:
    """The adapter of a plug-in that has not learned yet gives ρ to all, and it can learn from there."""
    options = {**SMALL, "adapter": (4,), "merge_start": 0.01}
    first = run(build("pfedrec", options, ["elastic-merge"]), train, rounds=0)
    view = first.method.view
    assert isinstance(view, Merged)
    start = torch.as_tensor(view.weight(first.held(np.arange(N_CLIENTS))))
    torch.testing.assert_close(start, torch.full_like(start, 0.01))
    adapter = run(build("pfedrec", options, ["elastic-merge"]), train, rounds=2).state.personal.tensors()
    assert adapter["adapter.2.weight"].abs().max() > 0


@both_engines
def test_clients_without_a_new_table_train_as_in_fedmf(train: LocalTraining) -> None:
    fedmf = after("fedmf", {**SMALL, "learning_rate": 0.1, "optimizer": "adam"}, train, 1)
    fedem = after("fedem", FEDEM, train, 1)
    assert torch.allclose(fedem["user"], fedmf["user"], rtol=1e-12, atol=0)


@both_engines
@pytest.mark.parametrize("reg", [0.0, 0.3])
def test_weight_decay_of_the_perceptron_alone(train: LocalTraining, reg: float) -> None:
    """One step of SGD: W ← W − η (∇ + (reg + perceptron_reg) W), so the decay adds −η perceptron_reg W."""
    options: dict[str, Any] = {
        **SMALL,
        "local_epochs": 1,
        "batch_size": 10**6,
        "learning_rate": 0.5,
        "reg": reg,
    }
    options |= {"perceptron": "personal", "hidden": (3, 2)}
    start = after("fedncf", options, train, 0)
    plain = after("fedncf", options, train, 1)
    decayed = after("fedncf", {**options, "perceptron_reg": 0.2}, train, 1)
    assert set(start) >= {"user", "mlp.1.user", "mlp.3.bias"}
    for name, values in start.items():
        expected = plain[name] - (0.5 * 0.2 * values if name.startswith("mlp.") else 0)
        assert torch.allclose(decayed[name], expected, rtol=1e-12, atol=1e-14), name


def test_a_personal_perceptron_is_not_sent() -> None:
    sent = [leaf.name for leaf in build("fedncf", {"perceptron": "personal"}).leaves if leaf.sent_as]
    assert sent == ["items"]


def test_a_method_with_a_table_per_client_keeps_its_server() -> None:
    with pytest.raises(ConfigError, match="already makes a table for every client"):
        build("fedem-sr", {"merge_server": "code"}, ["elastic-merge"])
    assert build("fedem-sr", {}, ["elastic-merge"]).aggregate.label.startswith("similarity-weighted")


def test_clients_without_a_new_table_train_plainly() -> None:
    """With the analytic gradient of the inner view and no adapter; the reference goes through the merge."""
    simulation = run(build("fedem", FEDEM), train_one_by_one, rounds=2)
    (merging, new), (plain, others) = simulation.task(2).by_news(np.arange(N_CLIENTS))
    assert (len(new), len(others)) == (2, 18)
    moved = [
        {name for stage in task.stages for move in stage.moves for name in move.all_leaves}
        for task in (merging, plain)
    ]
    assert moved[0] - moved[1] == {
        leaf.name for leaf in simulation.method.leaves if leaf.name.startswith("adapter")
    }
