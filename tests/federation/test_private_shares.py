"""Noise that nodes add in shares under masks: as much as is said, on all that is opened, and once a round."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from silence import CPU, SHORT, SMALL, Silent, dp, simulated, uploads

from closed_forms import closed_form
from one_process import ITEMS
from solera.core.closed_form import WEIGHTS
from solera.core.errors import RunError
from solera.core.fixed_point import ROW_WEIGHTS, USERS, WEIGHT, FixedPoint
from solera.data.ragged import Ragged
from solera.data.sampling import ClientData
from solera.dp.discrete import discrete_gaussian
from solera.dp.one_round import PrivateSum
from solera.engine import OneRound
from solera.federation.common.protocol import Reason, RefusalError
from solera.federation.node.node import Node
from solera.federation.secure.masked import contribution_of, encoding_of
from solera.federation.secure.shares import add_share, covered_sums, whole_share
from solera.federation.server import group_sums
from solera.federation.server.coordinator import Coordinator
from solera.federation.server.folder import FederationFolder


def shared(**given):
    return dp(mode="distributed", **given)


@pytest.fixture
def quiet(monkeypatch):
    """Nodes whose shares are zeros."""
    monkeypatch.setattr(
        "solera.federation.node.masked_round.discrete_gaussian", lambda sigma, count: np.zeros(count, int)
    )


@pytest.mark.parametrize(("method", "rate"), [("fedmf", 0.4), ("pfedclr", 1.0)])
def test_without_the_noise_it_is_the_simulator(masked, quiet, method, rate):
    federation = masked(method, SMALL | {"clients_per_round": rate}, dp=shared())
    federation.coordinator = Coordinator(federation.server, Silent())
    federation.run()
    differences = federation.differences(simulated(federation, rate, SHORT))
    assert max(differences.values()) < 1e-8, differences


@pytest.mark.parametrize("method", ["fedease", "fedslist"])
def test_without_the_noise_a_method_of_one_round_is_the_simulator(masked, quiet, histories, method):
    federation = masked(method, dp=shared(clip=2.0))
    federation.round()
    known = Ragged.from_lists(histories)
    private = PrivateSum(shared(clip=2.0), Silent())
    data = ClientData(known, known, ITEMS)
    alone = OneRound(closed_form(method), data, device=CPU, dtype=torch.float64, protection=private)
    alone.run_round(0)
    found = federation.coordinator.state.shared[WEIGHTS]
    assert torch.allclose(found, alone.state.shared[WEIGHTS], atol=1e-5)


@pytest.mark.parametrize(("lost", "survivors"), [({}, 5), ({100, 101}, 3)])
def test_what_is_opened_has_all_the_noise(masked, monkeypatch, lost, survivors):
    """A threshold of three nodes has just the central noise, five have 5/3 of its variance."""
    opened = []
    take = covered_sums

    def seen(method, n_items, values):
        opened.append(values)
        return take(method, n_items, values)

    monkeypatch.setattr(group_sums, "covered_sums", seen)
    federation = masked("fedmf", {"embedding_size": 64}, dp=shared(noise=50.0), min_replies=0.1)
    federation.tamper = lambda node, kind, p: None if node in lost and kind == "mask" else p
    entry = federation.round()
    assert entry["masked"] == {"members": 5, "threshold": 3, "survivors": survivors}
    (values,) = opened
    std = 50.0 * SHORT * math.sqrt(survivors / 3)  # beside which what users send is little
    numbers = values["change/items"]
    assert numbers.size == ITEMS * 64
    assert abs(float(numbers.var()) / std**2 - 1) < 6 * math.sqrt(2 / numbers.size)
    for name in (ROW_WEIGHTS, WEIGHT, USERS):  # nothing covers them: they are not there
        assert not values[name].any()
    steps = [each["steps"] for each in federation.devices[104].outbox()]
    assert steps[3][:2] == ["clip 0.05", "noise 50"]


@pytest.mark.parametrize("name", ["fedease", "fedslist"])
def test_noise_on_symmetric_sums_is_symmetric(name):
    """σ on the diagonal and σ/√2 beside it; all of σ where nothing is symmetric."""
    method, n, std = closed_form(name), 300, 3.0
    fixed = FixedPoint.of(method, n, places=5, margin=8 * std)
    encoding = encoding_of(method, n, fixed, members=5, capacity=1)
    vector = np.zeros(encoding.length, encoding.dtype)
    sigma = round(std * 2**fixed.fraction_bits)
    add_share(method, n, encoding, vector, sigma=sigma, draw=discrete_gaussian)
    found = contribution_of(method, n, encoding.decode(vector), None)
    for of, (rows, columns, symmetric, *_) in method.update.sums.items():
        for row in range(rows):
            for column in range(row if symmetric else 0, columns):
                block = found.blocks[of][row, :, column]
                whole = block.size if row != column or not symmetric else n * (n - 1) // 2
                beside = block if row != column or not symmetric else block[np.triu_indices(n, 1)]
                expected = std**2 / (2 if symmetric else 1)
                assert abs(float(beside.var()) / expected - 1) < 6 * math.sqrt(2 / whole)
                if symmetric and row == column:
                    assert np.array_equal(block, block.T)
                    assert abs(float(np.diag(block).var()) / std**2 - 1) < 6 * math.sqrt(2 / n)


def test_nodes_take_part_whose_users_were_not_drawn(masked):
    class Nobody(Silent):
        def coins(self, count: int, round_: int) -> np.ndarray:
            return np.full(count, 0.999)

    federation = masked("fedmf", SMALL | {"clients_per_round": 0.4}, dp=shared())
    federation.coordinator = Coordinator(federation.server, Nobody())
    before = federation.coordinator.state.shared["items"].clone()
    assert federation.round() is None  # a sum over nobody is below every owner's least number of users
    assert torch.equal(federation.coordinator.state.shared["items"], before)
    assert federation.rejected() == [Reason.DECLINED] * 5

    class One(Silent):
        def coins(self, count: int, round_: int) -> np.ndarray:
            return np.where(np.arange(count) < 3, 0.0, 0.999)  # the three users of the first node

    federation.coordinator = Coordinator(federation.server, One())
    entry = federation.round(attempt=1)
    assert (entry["wanted"], entry["nodes"]) == (3, 5)
    assert not torch.equal(federation.coordinator.state.shared["items"], before)
    little = masked("fedmf", SMALL | {"clients_per_round": 0.4}, dp=shared(noise=0.1))
    little.coordinator = Coordinator(little.server, Nobody())
    assert little.round() is None  # under little noise, nodes ask for users of their own
    assert little.rejected() == [Reason.DECLINED] * 5


def test_a_sum_that_was_opened_and_lost_counts(masked, monkeypatch):
    """The server has seen it: with what comes of the other rounds, these are the rounds accounted for."""
    federation = masked("fedmf", SMALL, dp=shared(), rounds=2)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(FederationFolder, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            federation.round()
    federation.restart_server()
    federation.coordinator.give_up_opening()
    assert federation.coordinator.rounds == 1
    assert federation.round() is not None
    with pytest.raises(RunError, match="all 1 rounds"):
        federation.round()
    federation.restart_server()
    assert (federation.coordinator.rounds, federation.coordinator.progress.rounds_done) == (1, 1)


def test_a_sum_that_was_being_opened_is_opened_once(masked, monkeypatch):
    """A server that was killed while it saved ends the same round: both rounds accounted for are there."""
    federation = masked("fedmf", SMALL, dp=shared(), rounds=2)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(FederationFolder, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            federation.round()
    federation.restart_server()
    assert federation.coordinator.rounds == 2
    assert federation.round() is not None
    assert federation.round() is not None
    with pytest.raises(RunError, match="all 2 rounds"):
        federation.round()
    assert federation.server.opened_rounds() == {0, 1}


def test_the_only_sum_of_a_method_of_one_round(masked, monkeypatch):
    federation = masked("fedease", dp=shared())

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(FederationFolder, "save", killed)
    with pytest.raises(KeyboardInterrupt):
        federation.round()
    federation.restart_server()
    federation.coordinator.give_up_opening()
    with pytest.raises(RunError, match="none could be used"):
        federation.restart_server()


def test_a_round_that_is_broken_off_before_was_not_seen(masked):
    federation = masked("fedmf", SMALL, dp=shared(), rounds=2)
    federation.tamper = lambda node, kind, p: None if kind == "mask" and node != 104 else p
    assert federation.round(attempt=0) is None
    assert federation.coordinator.rounds == 2
    federation.tamper = lambda node, kind, p: None if kind == "mask" and node == 104 else p
    assert federation.round(attempt=1) is not None


def test_nodes_add_no_share_without_masks(local):
    federation = local("fedmf", SMALL, dp=dp())
    federation.round()
    order = uploads(federation)[0][0]
    packet = replace(order, fields={**order.fields, "noise": 2.0})
    answer = Node(federation.devices[100], threads=1).answer("train", packet)
    assert "field noise" in answer.fields["declined"]


def test_what_is_guaranteed_is_stated(masked):
    federation = masked("fedmf", SMALL | {"clients_per_round": 0.4}, dp=shared())
    stated = federation.server.privacy
    assert stated["mode"] == "distributed"
    assert stated["epsilon_if_it_is_known_who_takes_part"] > stated["epsilon"]
    assert "no sum over fewer is opened" in stated["dropout"]
    assert stated["randomness"] == "operating system"


def test_a_share_covers_the_clip_and_what_rounding_moves():
    """By hand: 2^10 ulp, a clip of 1, 100 numbers, noise of 2 clips; and never below 4 ulp."""
    fixed = FixedPoint(clip=1.0, heaviest=1, fraction_bits=10, bits=32)
    found = whole_share(fixed, 100, clip=1.0, std=2.0, users=1)
    assert found == math.ceil(2 * (1024 * (1 + 1e-9) + (1 + 2**-22) * math.sqrt(200)))
    assert whole_share(fixed, 100, clip=1.0, std=1e-9, users=1) == 4
    with pytest.raises(RefusalError, match="too large to sample"):
        whole_share(fixed, 100, clip=1.0, std=1e12, users=1)
