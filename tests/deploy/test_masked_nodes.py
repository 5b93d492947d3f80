"""What a node does not do for a server that is not honest, and what a server sees of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from federation import ITEMS
from solera.core.errors import DeployError
from solera.deploy.authority import make_keys
from solera.deploy.membership import Membership
from solera.deploy.protocol import MESSAGE, Packet
from solera.deploy.roster import ROSTER, make_roster, read_roster
from solera.deploy.secure import open_node
from solera.deploy.secure_round import STAGES
from solera.deploy.supernode import pin
from solera.privacy.secagg import Setup, new_identity, public_identity

SMALL = {"embedding_size": 4}
HEAD = 4 + 1 + 32 + 2  # bytes of a masked upload before its vector


def setup_in(packet: Packet) -> Setup:
    return Setup.from_bytes(packet.arrays[MESSAGE].tobytes())


def with_setup(packet: Packet, **changed) -> Packet:
    setup = setup_in(packet).model_copy(update=changed)
    return replace(packet, arrays={MESSAGE: np.frombuffer(setup.to_bytes(), np.uint8)})


def other_encoding(packet: Packet) -> Packet:
    encoding = setup_in(packet).encoding
    parts = tuple(part.model_copy(update={"fraction_bits": 2}) for part in encoding.parts)
    return with_setup(packet, encoding=encoding.model_copy(update={"parts": parts}))


def stranger(packet: Packet) -> Packet:
    return with_setup(packet, roster=(*setup_in(packet).roster[:-1], public_identity(new_identity())))


LIES = {
    "a member that is not in the roster": ("advertise", stranger, "not trusted"),
    "fewer nodes than this one asks for": (
        "advertise",
        lambda p: with_setup(p, roster=setup_in(p).roster[:3], threshold=2),
        "sum over 2 nodes",
    ),
    "a threshold of half": ("advertise", lambda p: with_setup(p, threshold=2), "more than half"),
    "another encoding": ("advertise", other_encoding, "another encoding"),
    "room for others": (
        "advertise",
        lambda p: replace(p, fields=p.fields | {"capacity": 64}),
        "another encoding",
    ),
    "another round in the setup": ("advertise", lambda p: with_setup(p, round=9), "setup of round 9"),
    "a round without the node": (
        "advertise",
        lambda p: with_setup(p, roster=setup_in(p).roster[1:]),
        "without this node",
    ),
    "another federation": (
        "share",
        lambda p: replace(p, fields=p.fields | {"federation": "1" * 32}),
        "not enrolled",
    ),
    "another attempt": ("confirm", lambda p: replace(p, fields=p.fields | {"attempt": 1}), "under way"),
    "an array besides": (
        "unmask",
        lambda p: replace(p, arrays=p.arrays | {"more": np.zeros(3, np.uint8)}),
        "not declared",
    ),
    "nobody asked for, so that the others stand alone": (
        "mask",
        lambda p: replace(p, fields=p.fields | {"slots": [], "numbers": []}),
        "0 users here were asked for",
    ),
    "a user asked for twice": (
        "mask",
        lambda p: replace(p, fields=p.fields | {"slots": [1, 1], "numbers": [0, 0]}),
        "a user twice",
    ),
    "a state of its own": (
        "mask",
        lambda p: replace(p, arrays=p.arrays | {"shared/items": p.arrays["shared/items"] + 1}),
        "not agreed on",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_declined_and_nothing_leaves(masked, lie):
    """Told to one node: the others go on without it, or with what it had sent before."""
    stage, forge, words = LIES[lie]
    federation = masked("fedmf", SMALL)
    federation.forge = lambda node, kind, p: forge(p) if (node, kind) == (100, stage) else p
    assert federation.round() is not None
    answers = [(kind, answer) for node, kind, _, answer in federation.sent if node == 100]
    assert answers[-1][0] == stage
    assert words in answers[-1][1].fields["declined"]
    assert answers[-1][1].arrays == {}
    assert len(federation.devices[100].outbox()) == len(answers) - 1


def test_messages_of_another_round_and_second_ones_are_declined(masked):
    federation = masked("fedmf", SMALL)
    federation.round()
    first = {kind: packet for node, kind, packet, _ in federation.sent if node == 100}
    node = open_node(federation.devices[100], threads=1)
    for kind in STAGES:  # the round is over, all of it
        assert "declined" in node.answer(kind, first[kind]).fields, kind
    again: dict[str, Packet] = {}

    def ask_twice(who: int, kind: str, packet: Packet) -> Packet:
        if who == 100 and kind in STAGES:
            for stage in STAGES[: STAGES.index(kind)]:  # stages of this round that are over, and all old ones
                assert "declined" in open_node(federation.devices[100]).answer(stage, again[stage]).fields
                assert "declined" in open_node(federation.devices[100]).answer(stage, first[stage]).fields
        if who == 100:
            again[kind] = packet
        return packet

    federation.forge = ask_twice
    assert federation.round()["masked"]["survivors"] == 5
    federation.finish()
    assert federation.rejected() == []


def test_an_inbox_of_another_round_is_declined(masked):
    federation = masked("fedmf", SMALL)
    federation.round()
    old = {kind: p.arrays[MESSAGE] for node, kind, p, _ in federation.sent if node == 100 and kind != "enrol"}
    for stage in STAGES[1:]:
        federation.forge = lambda node, kind, p, stage=stage: (
            replace(p, arrays=p.arrays | {MESSAGE: old[kind]}) if (node, kind) == (100, stage) else p
        )
        assert federation.round() is not None
        said = [
            a.fields.get("declined", "") for n, kind, _, a in federation.sent if (n, kind) == (100, stage)
        ]
        assert "another session, round or setup" in said[-1], stage


def test_plain_rounds_are_declined_unless_allowed(masked):
    federation = masked("fedmf", SMALL)
    federation.round()
    device = federation.devices[100]
    order = federation.coordinator.begin(0, set(federation.devices))[100]
    assert "secure aggregation alone" in open_node(device, 1).answer("train", order).fields["declined"]
    allowed = Membership.read(device.path).model_copy(update={"allow_plain": True})
    allowed.write(device.path)
    assert open_node(device, 1).answer("train", order).arrays


def test_a_node_without_a_roster_says_so(local):
    federation = local("fedmf", SMALL)
    answer = open_node(federation.devices[100], 1).answer("advertise", Packet({}))
    assert "without --roster" in answer.fields["declined"]


def test_what_the_server_sees_is_noise(masked):
    """Bytes of masked uploads are uniform, those of a node that has nothing to add as well."""
    federation = masked("fedmf", {"embedding_size": 256})
    for user in ("u9", "u10"):  # of node 104: they know every item, so there is nothing to train on
        federation.devices[104].add_all([(str(i), 100 + i) for i in range(ITEMS)], user, "test")
    federation.round()
    uploads = {
        node: answer.arrays[MESSAGE].tobytes()[HEAD:]
        for node, kind, _, answer in federation.sent
        if kind == "mask"
    }
    assert len({len(data) for data in uploads.values()}) == 1
    for data in uploads.values():
        counts = np.bincount(np.frombuffer(data, np.uint8), minlength=256)
        expected = len(data) / 256
        chi_square = float(((counts - expected) ** 2 / expected).sum())
        assert abs(chi_square - 255) < 6 * (2 * 255) ** 0.5  # six standard deviations
    words = [np.frombuffer(data, "<u4").astype(np.int64) for data in uploads.values()]
    for place, one in enumerate(words):
        for other in words[place + 1 :]:  # pairs share no mask as it is: they would cancel or double
            assert abs(np.corrcoef(one, other)[0, 1]) < 6 / len(one) ** 0.5
    assert federation.server.lines("history.jsonl")[0]["clients"] == 9  # known of the sum, not of a node


def test_fields_in_the_clear_and_the_outbox(masked):
    federation = masked("fedmf", SMALL)
    federation.run(1)
    step = {"federation", "round", "attempt"}
    for _, kind, _, answer in federation.sent:
        if kind in STAGES:
            assert answer.fields.keys() == (step | {"version", "slots"} if kind == "mask" else step)
            assert answer.arrays.keys() == {MESSAGE}
    for node, device in federation.devices.items():
        answers = [answer for n, _, _, answer in federation.sent if n == node]
        written = device.outbox()
        assert [each["sha256"] for each in written] == [answer.digest for answer in answers]
        assert [each["steps"] for each in written] == [
            [],
            ["masked"],
            ["masked"],
            ["plain", "masked"],
            ["masked"],
            ["masked"],
            [],
        ]
        assert written[3]["tensors"][MESSAGE] == [HEAD + 8 * (ITEMS * 4 + ITEMS + 2)]


def test_secrets_do_not_stay(masked):
    federation = masked("fedmf", SMALL)
    federation.tamper = lambda node, kind, p: None if (node, kind) == (104, "confirm") else p
    federation.round()
    states = "SELECT COUNT(*) FROM masked_rounds WHERE state IS NOT NULL"
    left = {node: device.store.rows(states)[0][0] for node, device in federation.devices.items()}
    assert left == {100: 0, 101: 0, 102: 0, 103: 0, 104: 1}  # was never told how it ended
    state = bytes(federation.devices[104].store.rows("SELECT state FROM masked_rounds")[0][0])
    federation.finish()
    folder = federation.devices[104].path
    assert federation.devices[104].store.rows(states)[0][0] == 0
    secret = state[state.index(b'"seed_share":"') + 14 :][:40]
    assert len(secret) == 40
    assert not [path for path in folder.glob("device.db*") if secret in path.read_bytes()]


def test_rosters(five_keys, foreign_keys, tmp_path, masked):
    roster = make_roster(five_keys)
    path = tmp_path / ROSTER
    path.write_text(roster.model_dump_json())
    assert read_roster(path, five_keys / "ca.pem") == roster
    assert list(roster.nodes) == [f"node-{n}" for n in range(1, 6)]
    with pytest.raises(DeployError, match="not signed by the authority"):
        read_roster(path, foreign_keys / "ca.pem")
    fewer = roster.model_copy(update={"nodes": dict(list(roster.nodes.items())[1:])})
    path.write_text(fewer.model_dump_json())
    with pytest.raises(DeployError, match="not signed by the authority"):
        read_roster(path, five_keys / "ca.pem")
    path.write_text("{}")
    with pytest.raises(DeployError, match="no list of nodes"):
        read_roster(path, five_keys / "ca.pem")

    path.write_text(roster.model_dump_json())
    key, ca = five_keys / "nodes" / "node-2", five_keys / "ca.pem"
    device = tmp_path / "device"
    assert pin(device, key, ca, None) is None  # there is none beside ca.pem
    assert Membership.read(device) is None
    assert pin(device, key, ca, path).public in roster.keys
    assert Membership.read(device).roster == roster
    with pytest.raises(DeployError, match="asks for 6"):
        pin(device, key, ca, path, least_nodes=6)
    with pytest.raises(DeployError, match="has not the key"):
        pin(device, foreign_keys / "nodes" / "node-1", ca, path)
    assert pin(device, None, None, None) is None
    assert Membership.read(device) is None
    small = tmp_path / "small"
    make_keys(small, 0)
    with pytest.raises(DeployError, match="has no keys of nodes"):
        make_roster(small)
