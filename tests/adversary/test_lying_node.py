"""A node that sends what it should not, to spoil rounds or to steer them."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from attack import attack

from one_process import FEW
from solera.core.upload import Totals
from solera.federation.common.protocol import MESSAGE, Enrolment
from solera.federation.node.node import Node
from solera.federation.server.round import Ledger

LIAR = 102


@attack(
    "lying node",
    "One node with wrong shares cannot void a masked round; it is named and left out.",
    before="every masked round void, culprit unknown; under distributed noise the whole budget spent",
)
def test_one_wrong_share_among_twenty(world, reached):
    federation = world(sizes=(1,) * 20)

    def flip(node, kind, packet):
        if node == LIAR and kind == "unmask" and MESSAGE in packet.arrays:
            data = packet.arrays[MESSAGE].copy()
            data[-3] ^= 1
            return replace(packet, arrays={MESSAGE: data})
        return packet

    federation.tamper = flip
    entry = federation.round()
    assert entry is not None
    named = [e["node"] for e in federation.server.lines("events.jsonl") if e["event"] == "rejected"]
    assert named == [str(LIAR)]
    reached("round counts; the liar is named")


def claim(federation, users: int) -> None:
    """Node LIAR says that it has so many users."""
    federation.tamper = lambda node, kind, packet: (
        replace(packet, fields=packet.fields | {"slots": list(range(1, users + 1))})
        if node == LIAR and kind in ("enrol", "train") and "slots" in packet.fields
        else packet
    )


@attack(
    "lying node",
    "Users that a node only claims to have cannot void rounds.",
    before="a claim of 3,000 users voided every round (1,505 of 11 users needed)",
)
def test_users_that_do_not_exist(world, reached):
    for users, named in ((3000, "3000 users on one node; the limit is 100"), (100, "")):
        federation = world(masked=False)
        claim(federation, users)
        assert federation.round() is not None
        rejected = [e["message"] for e in federation.server.lines("events.jsonl") if e["event"] == "rejected"]
        assert rejected[:1] == ([named] if named else [])
    reached("3,000 are refused; with 100, the round counts")


@attack(
    "lying node",
    "What a claim costs the server grows linearly with its length.",
    before="16,000 users: 15.7 s; 1,000,000 users: about 16 h",
)
def test_a_claim_that_takes_hours(reached):
    ledger = Ledger()
    answer: dict[str, Any] = {"federation": "0" * 32, "version": 1, "catalogue": "0" * 64, "method": "fedmf"}
    ledger.enrol(1, Enrolment(**answer, slots=list(range(200_000))))
    began = time.process_time()
    assert ledger.members(1, list(range(100_000, 300_000))) == list(range(100_000))
    taken = time.process_time() - began
    assert taken < 5
    reached(f"200,000 users: {taken:.2f} s")


@attack(
    "lying node",
    "One node moves an item's row at most a few times as far as honest nodes do.",
    before="accepted; the row moved by 3,330, honest rows by 0.04",
)
@pytest.mark.parametrize("rounds", [0, 1])
def test_a_change_of_great_length(world, reached, rounds):
    """In the first round, where nothing is known of the others yet, and later."""
    federation = world(masked=False, sizes=(3, 3, 3))
    for _ in range(rounds):
        federation.round()
    before = federation.coordinator.state.shared["items"].clone()

    def push(node, kind, packet):
        if node == LIAR and kind == "train":
            change = np.zeros_like(packet.arrays["change/items"])
            change[0] = 1.0
            change *= 0.999e4 * len(packet.fields["trained"]) / np.linalg.norm(change)
            return replace(packet, arrays=packet.arrays | {"change/items": change})
        return packet

    federation.tamper = push
    federation.round()
    moved = (federation.coordinator.state.shared["items"] - before).norm(dim=1)
    ratio = float(moved.max() / moved.median())
    assert ratio < 100
    reached(f"row moves {ratio:.1f} times as far")


@attack(
    "lying node",
    "Under masks, no node writes a number that is larger than a few times the others' largest.",
    before="4,096 a user; honest users' largest is 0.1",
)
def test_a_large_number_under_masks(five, push, reached):
    """After the first round: the encoding has no room for more."""
    federation = five(sizes=(3, 3, 3, 3, 3))
    federation.round()
    bound = federation.coordinator.bound
    assert bound is not None
    push(federation)
    before = federation.coordinator.state.shared["items"].clone()
    federation.round()
    moved = (federation.coordinator.state.shared["items"] - before).abs()
    assert float(moved.max()) < 100 * float(moved[1:].median())
    reached(f"{bound:.3g} a user; a number moves {float(moved.max() / moved[1:].median()):.0f} times as far")


@attack(
    "lying node",
    "With groups, one node moves an item no further than honest groups do.",
    before="the row moved as far as the node wished: 4,096 a user",
)
def test_a_large_number_among_groups(world, push, reached):
    """From the first round on, in which no bound is known."""
    honest, attacked = (
        world(sizes=(2,) * 20, groups=5, threshold=0.75, least_nodes=3, least_share=0.1, least_users=3)
        for _ in range(2)
    )
    ways = []
    for federation in (honest, attacked):
        for device in federation.devices.values():  # a group has a fifth of the roster
            FEW.model_copy(update={"least_share": 0.1}).write(device.store)
        if federation is attacked:
            push(federation)
        before = federation.coordinator.state.shared["items"].clone()
        assert federation.round() is not None
        ways.append((federation.coordinator.state.shared["items"] - before).abs())
    assert float(ways[1].max()) < 3 * float(ways[0].max())
    reached(f"{float(ways[1].max() / ways[0].max()):.2f} times as far as without the attack")


@pytest.fixture
def push(monkeypatch):
    """One node trains as others do, and then writes a large number where the first item is."""

    def begin(federation):
        work = Node.work

        def larger(node, order, shared, cohort, limit=math.inf, *, seed=None):
            found = work(node, order, shared, cohort, limit, seed=seed)
            if node.device is not federation.devices[LIAR]:
                return found
            sums = found.total.sums()
            sums.changes["items"][0] = 1e6
            changed = Totals(node.method.leaves, node.n_items, torch.device("cpu"))
            changed.merge(sums)
            return replace(found, total=changed)

        monkeypatch.setattr(Node, "work", larger)

    return begin
