"""A refresh is local training on a longer history; nothing is sent, and the federation stays as it was."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from solera.core.method import Method
from solera.data.ragged import Ragged
from solera.data.sampling import ClientData, sample
from solera.engine import BlockTraining, Simulation, train_one_by_one
from solera.engine.serving import REFRESH_ROUNDS, refreshed, refreshed_leaves
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
def test_only_what_clients_hold_changes(name):
    made = simulation(name)
    before = values(made)
    after = refreshed(made, clients(6), np.array([0, 2]), 2)
    assert {n: v.tolist() for n, v in values(made).items()} == {n: v.tolist() for n, v in before.items()}
    for shared, value in made.state.shared.items():
        assert torch.equal(after.state.shared[shared], value), shared
    held, held_before = (each.held(np.arange(4)) for each in (after, made))
    moved = set()
    for leaf in made.method.leaves:
        value, earlier = held[leaf.name], held_before[leaf.name]
        if len(value) != 4:
            continue  # one table for all clients
        assert torch.equal(value[[1, 3]], earlier[[1, 3]]), "clients that were not asked"
        if not torch.equal(value, earlier):
            moved.add(leaf.name)
    leaves = {named.removeprefix("own rows of ") for named in refreshed_leaves(made)}
    assert leaves
    assert leaves <= moved


@pytest.mark.parametrize("name", ["fedmf", "pfedrec", "fedem", "plgc"])
def test_engines_agree(name):
    block, reference = simulation(name), simulation(name, train_one_by_one)
    one, other = (values(refreshed(each, clients(6), np.arange(4), 2)) for each in (block, reference))
    for leaf, value in one.items():
        torch.testing.assert_close(value, other[leaf])


def test_a_user_vector_by_hand():
    """SGD with one batch an epoch: vector and rows step together, and every round has the server's rows."""
    made = simulation("fedmf", optimizer="sgd", learning_rate=0.5)
    longer = clients(6)
    user = made.state.personal.whole["user"][1].clone()
    for round_ in range(7, 7 + REFRESH_ROUNDS):
        drawn = sample(longer, np.array([1]), 4, 3, round_).items.values.tolist()
        labels = torch.zeros(30, dtype=torch.float64)
        labels[:6] = 1
        items = made.state.shared["items"].clone()
        for _ in range(2):
            user, items = (each.detach().requires_grad_() for each in (user, items))
            loss = binary_cross_entropy_with_logits(items[drawn] @ user, labels)
            by_user, by_items = torch.autograd.grad(loss, (user, items))
            user, items = user - 0.5 * by_user, items - 0.5 * by_items
    found = refreshed(made, longer, np.array([1]), 7).state.personal.whole["user"][1]
    torch.testing.assert_close(found, user.detach())


@pytest.mark.parametrize("name", ["pfedrec", "pfedclr", "fedem"])
def test_a_refresh_is_the_next_rounds_of_a_client_whose_server_stands_still(name):
    made = simulation(name)
    found = refreshed(made, made.data, np.array([0]), 2)
    for round_ in range(2, 4):  # no more rounds than it has had
        deque(made.train_clients(round_, np.array([0])), maxlen=0)
    for leaf, value in made.held(np.array([0])).items():
        assert torch.equal(found.held(np.array([0]))[leaf], value), leaf


def test_training_goes_on_as_if_there_had_been_no_refresh():
    one, other = simulation("fedmf"), simulation("fedmf")
    refreshed(one, clients(6), np.arange(4), 2)
    for each in (one, other):
        deque(each.train_clients(2, np.arange(4)), maxlen=0)
    assert torch.equal(one.state.personal.whole["user"], other.state.personal.whole["user"])
