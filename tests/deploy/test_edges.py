"""Edges between nodes and server: the same outcome, fewer messages, and what an edge can and cannot do."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from edge_world import EDGE, World

from federation import FIVE
from solera.core.closed_form import WEIGHTS
from solera.deploy.common.envelopes import Exchange
from solera.deploy.common.flower import home_of
from solera.deploy.common.known_keys import KnownKeys, text_of
from solera.deploy.common.protocol import Packet, Reason, RefusalError
from solera.deploy.common.relays import Adding, read_relayed, relayed
from solera.deploy.operate.relaying import Relaying
from solera.deploy.server.edges import _relay
from solera.deploy.server.masked_round import STAGES
from solera.privacy.secagg import new_identity

SMALL = {"embedding_size": 4}


@pytest.fixture
def world(local, masked, five_keys):
    """Five nodes, some of them behind edges."""

    def make(edges: list[int], method: str = "fedmf", options=SMALL, *, masks: bool = False, **more) -> World:
        made = masked if masks else local
        settings = more if masks else {"sizes": FIVE, "over_selection": 1.0, **more}
        return World(made(method, options, **settings), five_keys, edges)

    return make


def last(world: World) -> dict:
    return world.local.server.lines("history.jsonl")[-1]


@pytest.mark.parametrize("masks", [False, True])
def test_the_outcome_is_the_one_without_edges(world, monkeypatch, masks):
    """Two edges with two members each, and a node of its own: all enrol, train and get the final state."""
    federation = world([2, 2], masks=masks)
    federation.train(monkeypatch)
    assert max(federation.local.differences(federation.local.simulated()).values()) < 1e-9
    entry = last(federation)
    assert (entry["nodes"], entry["clients"], entry["rejected"]) == (5, 11, {})
    assert list(entry["stages"]) == (list(STAGES) if masks else ["train"])
    for stage in entry["stages"].values():
        assert (stage["nodes"], stage["replies"], stage["messages"]) == (5, 5, 6)


@pytest.mark.parametrize("masks", [False, True])
def test_the_same_bits_as_without_edges(world, monkeypatch, masks):
    found = []
    for edges in ([], [5], [2, 2]):
        federation = world(edges, masks=masks)
        federation.enrol_all()
        federation.train(monkeypatch)
        found.append(federation.local.coordinator.state.shared["items"])
    assert torch.equal(found[0], found[1])
    if masks:  # whole numbers: their order does not matter
        assert torch.equal(found[0], found[2])
    else:
        assert torch.allclose(found[0], found[2], rtol=0, atol=1e-14)


@pytest.mark.parametrize("masks", [False, True])
def test_methods_of_one_round_take_one_message(world, monkeypatch, masks):
    """Each edge sends all its members have to say about their users at once; under masks, one vector."""
    federation, flat = (world(edges, "fedease", {}, masks=masks) for edges in ([3, 2], []))
    ups = []
    for each in (federation, flat):
        each.train(monkeypatch)
        assert last(each)["clients"] == 11
        ups.append(last(each)["stages"]["mask" if masks else "train"])
    mine, theirs = (each.local.coordinator.state.shared[WEIGHTS] for each in (federation, flat))
    assert torch.allclose(mine, theirs, atol=1e-12)
    assert [stage["messages"] for stage in ups] == [4, 10]
    if masks:
        assert ups[1]["up"] - ups[0]["up"] > 3 * 1200 - 5 * 400  # three vectors less, five boxes


def test_an_edge_adds_up_vectors_of_one_group_alone():
    """Members 1 and 2 are in one group, 3 in another; 4 has declined, and 5 sends too short a vector."""
    relay = _relay(
        Exchange("", new_identity(), 1),
        "mask",
        {number: Packet({"federation": 32 * "0", "for": number}) for number in (1, 2, 3, 4, 5)},
        [Adding(bits=32, bytes=8, members=[1, 2, 4, 5]), Adding(bits=32, bytes=8, members=[3])],
        seconds=1.0,
        wait=0.0,
    )
    relaying = Relaying(relay, [1, 2, 3, 4, 5])

    def vector(*values: int) -> np.ndarray:
        return np.array(values, "<u4").view(np.uint8)

    box = np.array([7], np.uint8)
    for number, values in ((1, (2**32 - 1, 1)), (2, (3, 4)), (3, (5, 6))):
        relaying.take(number, Packet({}, {"box": box, "vector": vector(*values)}))
    relaying.take(4, Packet({}, {"box": box}))
    with pytest.raises(RefusalError, match="does not fit"):
        relaying.take(5, Packet({}, {"box": box, "vector": vector(1)}))
    with pytest.raises(RefusalError, match="late"):
        relaying.take(1, Packet({}, {"box": box}))
    said, boxes, sums = read_relayed(relaying.answer([1, 2]))
    assert (said.sums, said.here, sorted(boxes)) == ([[1, 2], [3]], [1, 2], [1, 2, 3, 4])
    assert [np.frombuffer(each, "<u4").tolist() for each in sums] == [[2, 5], [5, 6]]


@pytest.mark.parametrize("stage", ["train", "share", "mask", "confirm"])
def test_a_member_drops_out(world, monkeypatch, stage):
    """Before its upload, it is as if it had been away; after that, its vector is in the sum."""
    federation = world([3], masks=stage != "train")
    federation.enrol_all()
    edge = federation.edges[EDGE]
    edge.drops = lambda member, kind: member == edge.members[1] and kind == stage
    federation.train(monkeypatch, rounds=1)
    assert last(federation)["nodes"] == (5 if stage == "confirm" else 4)
    assert last(federation)["rejected"] == {"no-reply": 1}
    flat = world([], masks=stage != "train")
    flat.enrol_all()
    if stage != "confirm":
        flat.flat -= {edge.members[1]}
    flat.train(monkeypatch, rounds=1)
    mine, theirs = (each.local.coordinator.state.shared["items"] for each in (federation, flat))
    assert torch.allclose(mine, theirs, rtol=0, atol=1e-9)


def test_members_that_come_later_and_leave(world, monkeypatch):
    federation = world([3])
    edge = federation.edges[EDGE]
    late, edge.members = edge.members[2], edge.members[:2]
    federation.train(monkeypatch, rounds=1)
    assert last(federation)["nodes"] == 4
    edge.members = [*edge.members[1:], late]
    federation.train(monkeypatch, rounds=2)
    assert (last(federation)["nodes"], last(federation)["rejected"]) == (4, {})


def changed(packet: Packet, change) -> Packet:
    """An edge's answer with other boxes or sums."""
    said, boxes, sums = read_relayed(packet)
    vectors = [np.frombuffer(each, "<u8").copy() for each in sums]
    boxes = change(boxes, vectors) or boxes
    return relayed(said.federation, boxes, list(zip(said.sums, vectors, strict=True)), said.here)


def flip(boxes, vectors):
    member = sorted(boxes)[0]
    return boxes | {member: boxes[member][:-1] + bytes([boxes[member][-1] ^ 1])}


def swap(boxes, vectors):
    one, other, *_ = sorted(boxes)
    return boxes | {one: boxes[other], other: boxes[one]}


@pytest.mark.parametrize(("lie", "lost"), [(flip, 1), (swap, 2)])
def test_an_edge_that_changes_or_swaps_answers_is_noticed(world, monkeypatch, lie, lost):
    federation = world([3])
    federation.enrol_all()
    federation.tamper = lambda edge, kind, p: changed(p, lie) if kind == "relay" else p
    federation.train(monkeypatch, rounds=1)
    assert last(federation)["nodes"] == 5 - lost
    assert last(federation)["rejected"]["edge"] == lost


def test_an_edge_that_repeats_an_earlier_answer_is_noticed(world, monkeypatch):
    federation = world([3], min_replies=0.1)
    federation.enrol_all()
    kept = []

    def repeat(edge, kind, packet):
        if kind == "relay":
            kept.append(packet)
            return kept[0]
        return packet

    federation.tamper = repeat
    federation.train(monkeypatch, rounds=1)
    assert last(federation)["rejected"] == {}
    federation.train(monkeypatch, rounds=2)
    assert last(federation)["nodes"] == 2
    assert last(federation)["rejected"]["edge"] == 3


def test_an_edge_that_answers_for_others_is_noticed(world, monkeypatch):
    """It names a member of another edge: that one stays with its own, and its answer here is refused."""
    federation = world([2, 2])
    federation.enrol_all()
    first, second = federation.edges[EDGE], federation.edges[EDGE + 1]
    stolen = first.members[0]

    def claim(edge, kind, packet):
        if edge == EDGE + 1:
            here = [*second.members, stolen]
            if kind == "relay":
                said, boxes, _ = read_relayed(packet)
                return relayed(said.federation, boxes | {stolen: b"x" * 99}, [], here)
            return Packet(packet.fields | {"here": here}, packet.arrays)
        return packet

    federation.tamper = claim
    federation.train(monkeypatch, rounds=1)
    assert last(federation)["nodes"] == 3
    events = federation.local.server.lines("events.jsonl")
    assert [e["node"] for e in events if e.get("reason") == Reason.EDGE] == [str(EDGE + 1)]


@pytest.mark.parametrize("what", ["bytes", "member"])
def test_a_member_takes_orders_of_its_server_alone(world, monkeypatch, what):
    """An edge that changes an order, or gives a member the order of another one, gets nothing."""
    federation = world([3], min_replies=0.1)
    federation.enrol_all()
    edge = federation.edges[EDGE]

    def forge(member, kind, order):
        if what == "bytes":
            fields = json.loads(order.fields["fields"]) | {"clip": 1e-9}
            return Packet(order.fields | {"fields": json.dumps(fields)}, order.arrays)
        return next((p for who, _, p in edge.orders if who != member), Packet({}, {}))

    edge.forge = forge
    federation.train(monkeypatch, rounds=1)
    assert last(federation)["nodes"] == 2
    assert len(edge.refused) == 3
    sent = [each["kind"] for n in edge.members for each in federation.local.devices[n].outbox()]
    assert "train" not in sent


def test_an_order_is_answered_once(world, monkeypatch):
    federation = world([3])
    federation.train(monkeypatch, rounds=1)
    edge = federation.edges[EDGE]
    member, kind, order = edge.orders[-1]
    for again, said in ((kind, "not newer"), ("finish", "has not sent this order")):
        with pytest.raises(RefusalError, match=said):
            federation.behind[member].answer(lambda kind, packet: pytest.fail("it was asked"), again, order)


@pytest.mark.parametrize("masks", [False, True])
def test_an_edge_reads_nothing_of_what_members_say(world, monkeypatch, masks):
    """What it passes on has no bytes of any answer in it, but masked vectors."""
    federation = world([3], masks=masks)
    passed = []

    def look(edge, kind, packet):
        passed.append(packet)
        return packet

    federation.tamper = look
    federation.train(monkeypatch)
    text = b"".join(p.arrays["boxes"].tobytes() for p in passed if "boxes" in p.arrays)
    assert len(text) > 10_000
    for word in (b"slots", b"trained", b"federation", b"SAG1", b"change/items", b"message"):
        assert word not in text


def test_an_edge_can_move_the_sum_that_it_makes(world, monkeypatch):
    """The limit of adding up under masks: a wrong sum is not noticed, as a wrong upload of a node is not."""
    states = []
    for wrong in (0, 1 << 20):
        federation = world([3], masks=True)
        federation.enrol_all()

        def add(boxes, vectors, wrong=wrong):
            for vector in vectors:
                vector[: len(vector) // 2] += np.uint64(wrong)

        federation.tamper = lambda edge, kind, p: changed(p, add) if kind == "relay" else p
        federation.train(monkeypatch, rounds=1)
        assert (last(federation)["nodes"], last(federation)["rejected"]) == (5, {})
        states.append(federation.local.coordinator.state.shared["items"])
    assert 0 < float((states[0] - states[1]).abs().max()) < 1e-3


def test_a_sum_with_an_answer_that_is_not_valid_is_lost_whole(world, monkeypatch):
    federation = world([2], masks=True)
    federation.enrol_all()
    is_mask = [False]

    def lie(edge, kind, packet):
        is_mask[0] = kind == "relay" and bool(read_relayed(packet)[2])
        return changed(packet, flip) if is_mask[0] else packet

    federation.tamper = lie
    federation.train(monkeypatch, rounds=1)
    entry = last(federation)
    assert entry["masked"] == {"members": 5, "threshold": 3, "survivors": 3}
    assert entry["rejected"] == {"edge": 2, "faulty": 1, "no-reply": 1}


def test_methods_that_send_users_their_own_tables_have_no_edges(world, monkeypatch):
    federation = world([3], "fedem")
    federation.train(monkeypatch, rounds=1)
    assert last(federation)["nodes"] == 2
    said = [e for e in federation.local.server.lines("events.jsonl") if e.get("reason") == Reason.EDGE]
    assert "which an edge would see" in said[0]["message"]


def test_a_revoked_member_is_left_out(world, five_keys, monkeypatch):
    """Before a run, or in the middle of a round."""
    federation = world([3], masks=True)
    home = home_of(federation.local.server.path)
    one, other = (five_keys / "nodes" / f"node-{place}.pub" for place in (1, 2))
    revoked = KnownKeys.change(home, lambda known: known.revoking([text_of(one)]))
    assert KnownKeys.read(home).with_nodes([one]).nodes == revoked.nodes

    def revoke(member, kind):
        if kind == "share":
            KnownKeys.change(home, lambda known: known.revoking([text_of(other)]))
        return False

    federation.edges[EDGE].drops = revoke
    federation.train(monkeypatch, rounds=1)
    assert last(federation)["masked"] == {"members": 4, "threshold": 3, "survivors": 3}


def test_a_server_killed_while_it_opens_a_sum_ends_that_round(world, monkeypatch):
    federation = world([3], masks=True)

    def killed(member, kind):
        if kind == "unmask":
            raise KeyboardInterrupt
        return False

    federation.edges[EDGE].drops = killed
    with pytest.raises(KeyboardInterrupt):
        federation.train(monkeypatch, rounds=1)
    federation.edges[EDGE].drops = lambda member, kind: False
    federation.local.restart_server()
    assert federation.local.coordinator.pending is not None
    federation.train(monkeypatch)
    assert sorted(federation.local.server.opened_rounds()) == [0, 1, 2]
    assert max(federation.local.differences(federation.local.simulated()).values()) < 1e-9
