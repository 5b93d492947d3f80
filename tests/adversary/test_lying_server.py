"""A server that breaks the rules, to learn more than one sum over enough nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from attack import attack
from opened import declined, history_in, keep_opened

from solera.deploy.membership import Membership
from solera.deploy.supernode import pin

VICTIM = 100
SILENCED = [{"clip": 1e-300}, {"clip": 1e-300, "noise": 0.5, "slots": [], "numbers": []}]


@pytest.mark.xfail(strict=True, reason="terms are not bound yet")
@pytest.mark.parametrize("lie", SILENCED)
@attack(
    "lying server",
    "No node can be given other terms than the rest of the cohort.",
    before="opened sum equal to the victim's upload to 7e-12; history read exactly",
)
def test_a_clip_that_silences_all_but_one(world, monkeypatch, lie, reached):
    federation, opened = world(sizes=(1, 1, 1, 1, 1)), keep_opened(monkeypatch)
    federation.forge = lambda node, kind, packet: (
        replace(packet, fields=packet.fields | lie) if kind == "mask" and node != VICTIM else packet
    )
    federation.round()
    assert not opened or history_in(opened[0]) != sorted(federation.histories[0])
    assert declined(federation)
    reached("nothing opened")


@pytest.mark.xfail(strict=True, reason="nodes answer any number of attempts")
@attack(
    "lying server",
    "No two sums of one round are opened over cohorts that differ in a few users.",
    before="difference of two sums equal to the victim's upload; history read exactly",
)
def test_two_sums_of_one_round(world, monkeypatch, reached):
    federation, opened = world(sizes=(1, 1, 1, 1, 1), threshold=0.75), keep_opened(monkeypatch)
    federation.round(online={100, 101, 102, 103}, attempt=0)
    federation.round(online={101, 102, 103}, attempt=1)
    assert len(opened) == 1
    reached("second sum not opened")


@pytest.mark.xfail(strict=True, reason="the least number of nodes does not follow from the roster")
@attack(
    "server with nodes of its own",
    "A cohort is at least half of the signed roster.",
    before="with two nodes of its own out of twelve, the server read the victim's history exactly",
)
def test_a_victim_among_the_servers_own_nodes(world, monkeypatch, reached):
    federation, opened = world(sizes=(1,) * 12, threshold=1.0), keep_opened(monkeypatch)
    federation.round(online={100, 105, 109})
    assert opened == []
    reached("nothing opened")


@pytest.mark.xfail(strict=True, reason="a missing roster unpins")
@attack(
    "lying server",
    "A device that has masked once never answers in plain without its owner's word.",
    before="a restart without roster.json answered plain rounds, and said nothing",
)
def test_a_restart_without_the_roster(world, node_keys, reached):
    federation = world()
    device = federation.devices[VICTIM]
    pin(device.path, node_keys / "nodes" / "node-1", node_keys / "ca.pem", None)
    assert Membership.read(device.path) is not None
    reached("still masked")
