"""A server that breaks the rules, to learn more than one sum over enough nodes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from attack import attack
from opened import declined, keep_opened
from two_terms import opened_under_two_terms

from one_process import FEW
from solera.device.ledger import Ledger
from solera.device.policy import Policy
from solera.federation.common.protocol import Packet
from solera.federation.node.masked_round import open_node
from solera.federation.node.membership import Membership, pin
from solera.federation.server.federation import FederationServer
from solera.federation.server.masked_round import STAGES

VICTIM = 100
FIVE = (1, 1, 1, 1, 1)


def forged(packet: Packet, **changed) -> Packet:
    return replace(packet, fields=packet.fields | changed)


def said_by(federation, node: int) -> list[str]:
    return [a.fields["declined"] for n, *_, a in federation.sent if n == node and "declined" in a.fields]


# Other terms for one than for the others


@pytest.mark.parametrize(
    "lie", [{"clip": 1e-9}, {"clip": 1e-9, "noise": 0.5}, {"bound": 1e-9}], ids=["clip", "noise", "bound"]
)
@attack(
    "lying server",
    "No node can be given other terms than the rest of its cohort.",
    before="opened sum equal to the victim's upload to 7e-12; history read exactly",
)
def test_a_clip_that_silences_all_but_one(five, monkeypatch, lie, reached):
    federation, honest, opened = five(sizes=FIVE), five(sizes=FIVE), keep_opened(monkeypatch)
    federation.forge = lambda node, kind, packet: (
        forged(packet, **lie) if kind == "advertise" and node != VICTIM else packet
    )
    federation.round()
    assert opened == []
    honest.round()
    assert len(opened) == 1  # without the lie, there is a sum
    masked = [kind for node, kind, *_ in federation.sent if kind == "mask"]
    assert masked == []
    reached("no upload leaves, nothing is opened")


@attack(
    "lying server",
    "Uploads made under different terms share no masks, so their sum tells nothing.",
    before="correlation 1.00 of the opened value with the victim's upload",
)
def test_the_victims_upload_is_not_in_what_is_opened(monkeypatch, reached):
    """A hundred trials in which no node checks a signature, and the server is given all self masks."""
    for place in ("rules", "client", "server"):
        monkeypatch.setattr(f"solera.privacy.secagg.{place}.is_signed", lambda *_: True)
    assert opened_under_two_terms(0, same=True) > 0.99  # the trial would find it
    found = max(opened_under_two_terms(trial) for trial in range(100))
    assert found <= 0.05
    reached(f"correlation at most {found:.3f} in 100 trials")


@pytest.mark.parametrize("field", ["slots", "numbers", "accepted"])
@attack(
    "lying server",
    "Which users train on which node is fixed before any node answers.",
    before="slots and numbers were the server's to choose when uploads were asked for",
)
def test_another_task_than_was_agreed_on(five, field, reached):
    federation = five()
    lies: dict[str, Any] = {"slots": [], "numbers": [], "accepted": "0.0"}
    changed: dict[str, Any] = (
        {"slots": [], "numbers": []} if field == "slots" else {field: lies[field] or [7, 8, 9]}
    )
    federation.forge = lambda node, kind, packet: (
        forged(packet, **changed) if (node, kind) == (VICTIM, "mask") else packet
    )
    federation.round()
    assert said_by(federation, VICTIM) == ["the task differs from the one in the terms"]
    reached("declined")


@attack(
    "lying server",
    "All members of a round train from the same state.",
    before="refused",
)
def test_a_state_under_which_the_others_add_nothing(five, reached):
    federation = five()
    federation.forge = lambda node, kind, packet: (
        replace(packet, arrays=packet.arrays | {"shared/items": packet.arrays["shared/items"] * 1e9})
        if kind == "mask" and node != VICTIM
        else packet
    )
    assert federation.round() is None
    assert len(declined(federation)) == 4
    reached("declined by all that were lied to; the round is void")


@attack(
    "lying server",
    "Users that do not exist hide nobody: a node with nothing to add takes no part.",
    before="nodes whose slots did not exist sent zeros; one user's upload was the sum",
)
def test_users_asked_for_who_are_not_there(five, monkeypatch, reached):
    federation, opened = five(sizes=FIVE), keep_opened(monkeypatch)
    enrol = federation.coordinator.enrol
    federation.coordinator.enrol = lambda node, packet: enrol(
        node, packet if node == VICTIM else forged(packet, slots=[77])
    )
    federation.round()
    assert opened == []
    assert [said_by(federation, node) for node in (101, 102, 103, 104)] == [
        ["the task names users who are not on this node"]
    ] * 4
    reached("declined; nothing opened")


# Other members


@attack(
    "server with nodes of its own",
    "A cohort is at least half of the signed roster.",
    before="with two nodes of its own out of twelve, the server read the victim's history exactly",
)
def test_a_victim_among_the_servers_own_nodes(world, monkeypatch, reached):
    federation = world(sizes=(1,) * 12, threshold=1.0, least_nodes=3, least_share=0.01)
    opened = keep_opened(monkeypatch)
    federation.round(online={100, 105, 109})  # its own are 105 and 109
    assert opened == []
    assert said_by(federation, VICTIM) == ["a sum over 3 of 20 nodes; this device requires 10"]
    reached("declined: half of the roster is asked for")


@attack(
    "lying server",
    "Only nodes that the roster's key has signed are summed up with.",
    before="refused",
)
def test_members_that_the_server_made_up(five, reached, five_keys):
    federation = five()
    invented = federation.coordinator.roster.nodes | {"invented": "A" * 160}

    def forge(node, kind, packet):
        if kind != "advertise" or node != VICTIM:
            return packet
        terms = json.loads(json.dumps(packet.fields))
        members = terms["groups"][0]["members"]
        members.append({**members[-1], "key": invented["invented"]})
        return replace(packet, fields=terms)

    federation.forge = forge
    federation.round()
    assert said_by(federation, VICTIM) == ["the group contains a node that does not belong to it"]
    reached("declined")


@attack(
    "lying server",
    "A device that has masked once never answers in plain without its owner's word.",
    before="a restart without roster.json answered plain rounds, and said nothing",
)
def test_a_restart_without_the_roster(five, five_keys, reached):
    federation = five()
    device = federation.devices[VICTIM]
    pin(device.path, five_keys / "nodes" / "node-1", five_keys / "ca.pem", None)
    assert Membership.read(device.store) is not None
    reached("still masked: the list is in the device's database")


@attack(
    "lying server",
    "Nobody is shown a list of nodes of their own.",
    before="each node took any list that the authority had signed",
)
def test_a_list_of_nodes_for_the_victim_alone(five, five_keys, reached):
    """Two lists with one number are signed. Their digests differ, so their nodes are in no round together."""
    from solera.federation.secure.roster import _secret_key

    federation = five()
    roster = federation.coordinator.roster
    secret = _secret_key(five_keys / "roster.key")
    fork = roster.model_copy(update={"nodes": dict(list(roster.nodes.items())[:4])}).signed(secret)
    store = federation.devices[VICTIM].store
    Membership.read(store).model_copy(update={"roster": fork}).write(store)
    entry = federation.round()
    assert entry["masked"]["survivors"] == 4
    assert said_by(federation, VICTIM) == ["this node could not answer; its log says why"]
    reached("in no round with the others")


# The same round again


@attack(
    "lying server",
    "No two sums of one round are opened over cohorts that differ in a few users.",
    before="difference of two sums equal to the victim's upload; history read exactly",
)
def test_two_sums_of_one_round(five, monkeypatch, reached):
    federation, opened = five(sizes=FIVE, threshold=0.75), keep_opened(monkeypatch)
    federation.round(online={100, 101, 102, 103})
    federation.coordinator.pending = None  # the server forgets that it has opened it
    monkeypatch.setattr(FederationServer, "fixed_cohort", [])
    federation.round(online={101, 102, 103}, attempt=1)
    assert len(opened) == 1
    assert {words for node in (101, 102, 103) for words in said_by(federation, node)} == {
        "this node has already helped to open a sum of round 1"
    }
    reached("second sum declined by all who have revealed")


@attack(
    "lying server",
    "A round that was broken off is repeated with fresh, secret randomness.",
    before="an upload of a second attempt was the same to the last bit",
)
def test_a_round_that_is_broken_off_and_tried_again(five, reached):
    """What a node trains in two attempts of one round, seen through the device itself."""
    federation = five()
    federation.tamper = lambda node, kind, packet: None if kind == "confirm" else packet
    assert federation.round() is None
    first = federation.devices[VICTIM].kept("u0")
    assert federation.round(attempt=1) is None
    second = federation.devices[VICTIM].kept("u0")
    difference = max(float(abs(first[name] - second[name]).max()) for name in first)
    assert difference > 1e-9  # with the same draws it would be 0
    reached(f"users' parameters differ by {difference:.1g} between the attempts")


@attack(
    "lying server",
    "A second sum over nearly the same users is declined at the list of survivors too.",
    before="not looked at",
)
def test_a_list_of_survivors_that_differs_by_one(five, monkeypatch, reached):
    """All have opened the first sum; the server then lets one node drop out of another round."""
    federation, opened = five(sizes=FIVE), keep_opened(monkeypatch)
    federation.round()
    federation.coordinator.pending, federation.coordinator.progress.number = None, 1
    monkeypatch.setattr(FederationServer, "fixed_cohort", [])
    federation.tamper = lambda node, kind, packet: None if (node, kind) == (VICTIM, "mask") else packet
    federation.round(attempt=1)
    assert len(opened) == 1
    said = [words for node in (101, 102, 103, 104) for words in said_by(federation, node)]
    assert len(said) == 4
    assert all("over one cohort alone; this is another one" in words for words in said)
    reached("declined by all")


@attack("lying server", "A node answers every message of a round once.", before="refused")
def test_every_message_sent_twice(five, reached):
    federation = five()
    federation.round()
    node = open_node(federation.devices[VICTIM], 1)
    old = {kind: packet for who, kind, packet, _ in federation.sent if who == VICTIM and kind in STAGES}
    for kind in STAGES[:-1]:
        assert "declined" in node.answer(kind, old[kind]).fields, kind
    reached("declined; the last answer is given again as it was")


# What the owner does not allow


POLICIES = {
    "noise": (Policy(least_nodes=3, least_users=3, least_noise=1.0), "no noise"),
    "clip": (Policy(least_nodes=3, least_users=3, largest_clip=0.5), "no clip"),
    "epsilon": (Policy(least_nodes=3, least_users=3, epsilon=8.0), "ε would be inf"),
    "nodes": (Policy(least_nodes=4, least_users=3), "a sum over 3 of 5 nodes"),
    "users": (Policy(least_nodes=3, least_users=20), "a sum over 11 users"),
}


@pytest.mark.parametrize("limit", POLICIES)
@attack(
    "lying server",
    "The owner's limits hold against every server: cohort, clip, noise, ε, uploads a day.",
    before="no such limits but the number of nodes",
)
def test_a_round_beyond_the_owners_limits(five, limit, reached):
    policy, words = POLICIES[limit]
    federation = five()
    policy.write(federation.devices[VICTIM].store)
    federation.round()
    assert [each.startswith(words) for each in said_by(federation, VICTIM)] == [True]
    reached("declined")


@attack(
    "lying server",
    "The owner's limits hold against every server: cohort, clip, noise, ε, uploads a day.",
    before="no limit",
)
def test_more_rounds_than_the_owner_allows_in_a_day(five, reached):
    federation = five(rounds=9)
    FEW.model_copy(update={"rounds_per_day": 2}).write(federation.devices[VICTIM].store)
    for _ in range(4):
        federation.round()
    assert said_by(federation, VICTIM) == ["this device has sent 2 uploads in the last 24 hours"] * 2
    reached("declined from the third round on")


@attack(
    "lying server",
    "ε adds up over rounds and federations on the device itself, and outlasts restarts.",
    before="the device kept no account",
)
def test_a_server_that_forgets_what_was_spent(five, reached):
    noise = {"noise": 2.0, "delta": 1e-5, "clip": 1.0, "mode": "distributed"}
    federation = five(dp=noise, rounds=9)
    store = federation.devices[VICTIM].store
    Policy(least_nodes=3, least_users=3, epsilon=3.5).write(store)
    for _ in range(4):
        federation.round()
    (spent,) = federation.devices[VICTIM].status()["federations"]
    # 1/4 a round: ε is 2.17 after one, 3.19 after two and 4.00 after three rounds.
    assert spent["uploads"] == 2
    assert 3.1 < spent["epsilon"] < 3.3
    assert len(said_by(federation, VICTIM)) == 2
    assert Ledger(store).spent("f" * 32).everywhere == pytest.approx(0.5)
    reached("ε 3.19 spent of 3.5; the third round is declined")


@attack(
    "lying server",
    "A device takes part in no federation that its owner has not agreed to.",
    before="any server that could reach the node enrolled it",
)
def test_a_federation_that_nobody_agreed_to(five, reached):
    federation = five()
    Ledger(federation.devices[VICTIM].store).join_next(False)
    federation.round()
    assert said_by(federation, VICTIM) == [
        "the owner of this device has not decided about this federation yet"
    ]
    (asked,) = federation.devices[VICTIM].status()["federations"]
    assert (asked["standing"], asked["uploads"]) == ("asked", 0)
    reached("declined; the owner sees who has asked")


@attack(
    "lying server",
    "A federation cannot take back protection that the owner agreed to.",
    before="plain rounds could follow masked ones where --allow-plain was given",
)
def test_less_protection_than_was_agreed_to(five, reached):
    federation = five()
    federation.round()
    store = federation.devices[VICTIM].store
    Policy(allow_plain=True).write(store)
    invitation = Packet(
        {"protocol": 4, "federation": federation.coordinator.identity.federation, "agreement": {}}
    )
    answer = open_node(federation.devices[VICTIM], 1).answer("enrol", invitation)
    assert "has not decided about" in answer.fields["declined"]
    reached("declined until the owner agrees anew")
