"""A refresh trains a client's personal leaves on a longer history; nothing else changes."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from solera.core.method import Method
from solera.core.spec import Home
from solera.data.ragged import Ragged
from solera.data.sampling import ClientData, sample
from solera.engine import BlockTraining, Simulation, train_one_by_one
from solera.engine.refresh import REFRESH_ROUNDS, refreshed, refreshed_leaves
from solera.methods import find

N_ITEMS = 30
METHODS = ("fedmf", "pfedrec", "fedrap", "fedem", "plgc", "pfedclr", "fedrecon", "gpfedrec", "local")


def clients(each: int) -> ClientData:
    """Four users; those with more items have the same first ones."""
    draw = np.random.default_rng(0)
    train = Ragged.from_lists([draw.permutation(N_ITEMS)[:each].tolist() for _ in range(4)])
    return ClientData(train, train.sorted_unique(), N_ITEMS)


def simulation(name: str, train=None, **options) -> Simulation:
    method = find(name, {"embedding_size": 4, "local_epochs": 2, **options}, ())
    assert isinstance(method, Method)
    place, dtype = torch.device("cpu"), torch.float64
    made = Simulation(
        method, clients(5), train or BlockTraining(threads=1), seed=3, device=place, dtype=dtype
    )
    for round_ in range(2):
        made.run_round(round_)
    return made


def values(made: Simulation) -> dict[str, torch.Tensor]:
    server, personal = made.state.tensors()
    return {name: value.clone() for name, value in (server | personal).items()}


@pytest.mark.parametrize("name", METHODS)
def test_only_personal_leaves_change(name):
    made = simulation(name)
    before = values(made)
    after = refreshed(made, clients(6), np.array([0, 2]), 2)
    assert {n: v.tolist() for n, v in values(made).items()} == {n: v.tolist() for n, v in before.items()}
    personal = {leaf.name for leaf in made.method.select(home=Home.PERSONAL)}
    moved = set()
    for leaf, value in values(after).items():
        if leaf in personal:
            assert torch.equal(value[[1, 3]], before[leaf][[1, 3]]), "clients that were not asked"
            if not torch.equal(value, before[leaf]):
                moved.add(leaf)
        else:
            assert torch.equal(value, before[leaf]), leaf
    leaves = refreshed_leaves(made)
    assert leaves
    assert set(leaves) <= moved


@pytest.mark.parametrize("name", ["fedmf", "pfedrec", "fedem", "plgc"])
def test_engines_agree(name):
    block, reference = simulation(name), simulation(name, train_one_by_one)
    one, other = (values(refreshed(each, clients(6), np.arange(4), 2)) for each in (block, reference))
    for leaf, value in one.items():
        torch.testing.assert_close(value, other[leaf])


def test_a_user_vector_by_hand():
    """SGD with one batch an epoch: the vector steps down the mean loss of its samples, items fixed."""
    made = simulation("fedmf", optimizer="sgd", learning_rate=0.5)
    longer = clients(6)
    user = made.state.personal.whole["user"][1].clone()
    items = made.state.shared["items"]
    for round_ in range(7, 7 + REFRESH_ROUNDS):
        drawn = sample(longer, np.array([1]), 4, 3, round_)
        labels = torch.zeros(30, dtype=torch.float64)
        labels[:6] = 1
        for _ in range(2):
            user = user.detach().requires_grad_()
            loss = binary_cross_entropy_with_logits(items[drawn.items.values.tolist()] @ user, labels)
            user = user - 0.5 * torch.autograd.grad(loss, user)[0]
    found = refreshed(made, longer, np.array([1]), 7).state.personal.whole["user"][1]
    torch.testing.assert_close(found, user.detach())


def test_kept_rows_are_what_a_client_trains_against():
    """PFedRec is served with its own rows: with other rows kept, the score function goes elsewhere."""
    made = simulation("pfedrec")
    found = refreshed(made, clients(6), np.array([0]), 2).state.personal.whole["score.weight"][0]
    forgetful = simulation("pfedrec")
    forgetful.state.personal.rows["items"] = forgetful.state.personal._empty()
    other = refreshed(forgetful, clients(6), np.array([0]), 2).state.personal.whole["score.weight"][0]
    assert not torch.allclose(found, other)


def test_training_goes_on_as_if_there_had_been_no_refresh():
    one, other = simulation("fedmf"), simulation("fedmf")
    refreshed(one, clients(6), np.arange(4), 2)
    for each in (one, other):
        deque(each.train_clients(2, np.arange(4)), maxlen=0)
    assert torch.equal(one.state.personal.whole["user"], other.state.personal.whole["user"])
