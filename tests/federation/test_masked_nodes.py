"""What a node does not do for a server that is not honest, and what a server sees of it."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace

import numpy as np
import pytest

from one_process import ITEMS
from solera.core.errors import DeployError
from solera.device.policy import Policy
from solera.federation.common.authority import ROSTER_PUBLIC, make_keys
from solera.federation.common.protocol import MESSAGE, Packet
from solera.federation.node.masked_round import open_node
from solera.federation.node.membership import Membership, pin
from solera.federation.secure.influence import BUCKETS
from solera.federation.secure.roster import ROSTER, make_roster, read_roster, read_roster_key
from solera.federation.secure.terms import RoundTerms
from solera.federation.server.masked_round import STAGES
from solera.privacy.identity import new_identity, public_identity

SMALL = {"embedding_size": 4}
HEAD = 4 + 1 + 32 + 2 + 2  # bytes of a masked upload before its vector
STRANGER = base64.b64encode(public_identity(new_identity())).decode()


def with_terms(change):
    """A lie about the terms: `change` gets them as they are and says what is different."""

    def forge(packet: Packet) -> Packet:
        terms = RoundTerms.of(packet)
        return Packet(packet.fields | json.loads(json.dumps(change(terms), default=_plain)))

    return forge


def _plain(value):
    return value.model_dump(mode="json")


def group(terms: RoundTerms, **changed):
    return {"groups": [terms.groups[0].model_copy(update=changed)]}


def stranger(terms: RoundTerms):
    members = terms.groups[0].members
    return group(terms, members=(*members, members[-1].model_copy(update={"key": STRANGER})))


def with_fields(**fields):
    return lambda packet: replace(packet, fields=packet.fields | fields)


LIES = {
    "a member that is not in the roster": ("advertise", with_terms(stranger), "does not belong to it"),
    "another roster": (
        "advertise",
        with_terms(lambda t: {"roster": "0" * 64}),
        "list of nodes is not the one",
    ),
    "another model": (
        "advertise",
        with_terms(lambda t: {"model": "0" * 64}),
        "its options or the catalogue differ",
    ),
    "fewer nodes than this one asks for": (
        "advertise",
        with_terms(lambda t: group(t, members=t.groups[0].members[:3], threshold=2)),
        "sum over 2 of 5 nodes|not a member of the round",
    ),
    "a threshold of half": (
        "advertise",
        with_terms(lambda t: group(t, threshold=2)),
        "sum over 2 of 5 nodes",
    ),
    "fewer users than this one asks for": (
        "advertise",
        with_terms(
            lambda t: (
                group(t, members=tuple(m.model_copy(update={"users": 0}) for m in t.groups[0].members))
                | {"least_users": 2}
            )
        ),
        "sum over 0 users",
    ),
    "a round without the node": (
        "advertise",
        with_terms(lambda t: group(t, members=tuple(m for m in t.groups[0].members if m.users != 3))),
        "not a member of the round",
    ),
    "a clip that leaves nothing": (
        "advertise",
        with_terms(lambda t: {"clip": 1e-300}),
        "all values would become 0",
    ),
    "noise without a clip": ("advertise", with_terms(lambda t: {"noise": 1.0}), "without a clip"),
    "a node twice": (
        "advertise",
        with_terms(lambda t: group(t, members=(*t.groups[0].members, t.groups[0].members[0]))),
        "listed twice",
    ),
    "another protocol": ("advertise", with_fields(protocol=3), "uses protocol 3, and this side speaks 5"),
    "no protocol": (
        "share",
        lambda p: replace(p, fields={n: v for n, v in p.fields.items() if n != "protocol"}),
        "uses protocol 1, and this side speaks 5",
    ),
    "another federation": ("share", with_fields(federation="1" * 32), "not enrolled"),
    "another attempt": ("confirm", with_fields(attempt=1), "under way"),
    "an array besides": (
        "unmask",
        lambda p: replace(p, arrays=p.arrays | {"more": np.zeros(3, np.uint8)}),
        "not declared",
    ),
    "nobody asked for, so that the others stand alone": (
        "mask",
        with_fields(slots=[], numbers=[]),
        "the task differs",
    ),
    "another user asked for": ("mask", with_fields(slots=[2, 3, 1]), "the task differs"),
    "other numbers to draw by": ("mask", with_fields(numbers=[7, 8, 9]), "the task differs"),
    "another update said to be taken": ("mask", with_fields(accepted="0.0"), "the task differs"),
    "a state of its own": (
        "mask",
        lambda p: replace(p, arrays=p.arrays | {"shared/items": p.arrays["shared/items"] + 1}),
        "the state differs",
    ),
}
# These change the terms of one node: it sees nothing wrong with them, but the others' signatures do not fit.
SILENT_LIES = {
    "a clip": lambda t: {"clip": 1e-9},
    "a clip and noise": lambda t: {"clip": 1e-9, "noise": 50.0},
    "next to no noise": lambda t: {"clip": 1.0, "noise": 1e-200},
    "a bound": lambda t: {"bound": 1e-9},
    "room for others": lambda t: {"capacity": 64},
    "another nonce": lambda t: {"nonce": "0" * 32},
    "another state": lambda t: {"state": "0" * 64},
    "another round": lambda t: {"round": 9},
    "another attempt": lambda t: {"attempt": 9},
    "fewer users needed": lambda t: {"least_users": 4},
    "other tasks for others": lambda t: group(
        t, members=(*t.groups[0].members[:-1], t.groups[0].members[-1].model_copy(update={"task": "0" * 64}))
    ),
    "a higher threshold": lambda t: group(t, threshold=5),
    "others in another order": lambda t: group(t, members=t.groups[0].members[::-1]),
}


@pytest.mark.parametrize("lie", SILENT_LIES)
def test_terms_of_ones_own_share_no_masks_with_the_others(masked, lie):
    """The node answers, under a context of its own; the server gets nothing that goes with the others'."""
    federation = masked("fedmf", SMALL)
    forge = with_terms(SILENT_LIES[lie])
    federation.forge = lambda node, kind, p: forge(p) if (node, kind) == (100, "advertise") else p
    assert federation.round() is not None
    answers = {kind: answer for node, kind, _, answer in federation.sent if node == 100}
    assert "declined" not in answers["advertise"].fields
    assert answers.keys() == {"enrol", "advertise"}  # the server could use no answer, and asked no more
    assert federation.server.lines("history.jsonl")[0]["masked"]["survivors"] == 4


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_declined_and_nothing_leaves(masked, lie):
    """Told to one node: the others go on without it, or with what it had sent before."""
    stage, forge, words = LIES[lie]
    federation = masked("fedmf", SMALL)
    federation.forge = lambda node, kind, p: forge(p) if (node, kind) == (100, stage) else p
    assert federation.round() is not None
    answers = [(kind, answer) for node, kind, _, answer in federation.sent if node == 100]
    assert answers[-1][0] == stage
    assert re.search(words, answers[-1][1].fields["declined"])
    assert answers[-1][1].arrays == {}
    written = federation.devices[100].outbox()
    assert len(written) == len(answers)
    assert written[-1]["kind"] == "declined"


def test_messages_of_another_round_and_second_ones_are_declined(masked):
    federation = masked("fedmf", SMALL)
    federation.round()
    first = {kind: packet for node, kind, packet, _ in federation.sent if node == 100}
    node = open_node(federation.devices[100], threads=1)
    for kind in STAGES[:-1]:  # the round is over
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


def test_the_answer_to_unmask_is_given_again_to_the_same_request_alone(masked):
    federation = masked("fedmf", SMALL)
    federation.round()
    request, answer = next(
        (packet, answer) for node, kind, packet, answer in federation.sent if (node, kind) == (100, "unmask")
    )
    node = open_node(federation.devices[100], threads=1)
    assert node.answer("unmask", request).digest == answer.digest
    other = request.arrays[MESSAGE].copy()
    other[-1] ^= 1
    assert "declined" in node.answer("unmask", replace(request, arrays={MESSAGE: other})).fields
    federation.round()  # the next round ends it
    assert "declined" in open_node(federation.devices[100], 1).answer("unmask", request).fields


def test_an_inbox_of_another_round_is_declined(masked):
    federation = masked("fedmf", SMALL)
    federation.round()
    old = {
        kind: p.arrays[MESSAGE] for node, kind, p, _ in federation.sent if node == 100 and kind in STAGES[1:]
    }
    for stage in STAGES[1:]:
        federation.forge = lambda node, kind, p, stage=stage: (
            replace(p, arrays=p.arrays | {MESSAGE: old[kind]}) if (node, kind) == (100, stage) else p
        )
        # Without node 100 before its upload has come, it is another cohort than that of the first round.
        assert (federation.round() is not None) == (stage in ("confirm", "unmask"))
        said = [
            a.fields.get("declined", "") for n, kind, _, a in federation.sent if (n, kind) == (100, stage)
        ]
        assert "another session, round or setup" in said[-1], stage


def test_plain_rounds_are_declined_unless_the_owner_allows_them(masked, local):
    federation, plain = masked("fedmf", SMALL), local("fedmf", SMALL)
    federation.round()
    plain.round()
    device = federation.devices[100]
    order = federation.coordinator.begin(0, set(federation.devices))[100]
    assert "only masked rounds" in open_node(device, 1).answer("train", order).fields["declined"]
    Policy(allow_plain=True).write(device.store)  # still not: the owner agreed to masked rounds
    assert "only masked rounds" in open_node(device, 1).answer("train", order).fields["declined"]
    order = plain.coordinator.begin(0, set(plain.devices))[100]
    assert open_node(plain.devices[100], 1).answer("train", order).arrays
    Policy(allow_plain=False).write(plain.devices[100].store)
    assert "only masked rounds" in open_node(plain.devices[100], 1).answer("train", order).fields["declined"]


def test_a_node_without_a_roster_says_so(local):
    federation = local("fedmf", SMALL)
    answer = open_node(federation.devices[100], 1).answer("advertise", Packet({}))
    assert "without --roster" in answer.fields["declined"]


def test_what_the_server_sees_is_noise(masked):
    """Bytes of masked uploads are uniform, and how many users a node has trained does not show."""
    federation = masked("fedmf", {"embedding_size": 256})
    # Of node 104, one user knows every item, so there is nothing to train on.
    federation.devices[104].add_all([(str(i), 100 + i) for i in range(ITEMS)], "u9", "test")
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
    assert federation.server.lines("history.jsonl")[0]["clients"] == 10  # known of the sum, not of a node


def test_fields_in_the_clear_and_the_outbox(masked):
    federation = masked("fedmf", SMALL)
    federation.run(1)
    step = {"protocol", "federation", "round", "attempt"}
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
            ["bound 1e+09", "plain", "masked"],
            ["masked"],
            ["masked"],
            [],
        ]
        assert written[3]["tensors"][MESSAGE] == [HEAD + 8 * (ITEMS * 4 + ITEMS + 2 + BUCKETS)]


def test_secrets_do_not_stay(masked):
    federation = masked("fedmf", SMALL)
    federation.tamper = lambda node, kind, p: None if (node, kind) == (104, "confirm") else p
    federation.round()
    states = "SELECT COUNT(*) FROM rounds WHERE secrets IS NOT NULL"
    left = {node: device.store.rows(states)[0][0] for node, device in federation.devices.items()}
    assert left == {100: 0, 101: 0, 102: 0, 103: 0, 104: 1}  # was never told how it ended
    state = bytes(
        federation.devices[104].store.rows("SELECT secrets FROM rounds WHERE secrets IS NOT NULL")[0][0]
    )
    federation.finish()
    folder = federation.devices[104].path
    assert federation.devices[104].store.rows(states)[0][0] == 0
    secret = state[state.index(b'"seed_share":"') + 14 :][:40]
    assert len(secret) == 40
    assert not [path for path in folder.glob("device.db*") if secret in path.read_bytes()]


def test_a_node_that_has_nothing_to_add_takes_no_part(masked):
    """It would hide nobody. That it has nothing to add shows, to the server and by its silence."""
    federation = masked("fedmf", SMALL)
    for user in ("u9", "u10"):
        federation.devices[104].add_all([(str(i), 100 + i) for i in range(ITEMS)], user, "test")
    assert federation.round()["masked"]["survivors"] == 4
    said = [a.fields["declined"] for node, *_, a in federation.sent if node == 104 and "declined" in a.fields]
    assert said == ["fewer than 1 users of this node can train"]


def signer(keys):
    return read_roster_key(keys / ROSTER_PUBLIC)


def test_rosters_are_signed(five_keys, foreign_keys, tmp_path):
    roster = make_roster(five_keys)
    path = tmp_path / ROSTER
    path.write_text(roster.model_dump_json())
    assert read_roster(path, signer(five_keys)) == roster
    assert list(roster.nodes) == [f"node-{n}" for n in range(1, 6)]
    with pytest.raises(DeployError, match="not signed with the roster's key"):
        read_roster(path, signer(foreign_keys))
    fewer = roster.model_copy(update={"nodes": dict(list(roster.nodes.items())[1:])})
    path.write_text(fewer.model_dump_json())
    with pytest.raises(DeployError, match="not signed with the roster's key"):
        read_roster(path, signer(five_keys))
    for text in ("{}", "", '{"nodes": {"a": "b"}}', '{"version": 1, "nodes": {}}'):
        path.write_text(text)
        with pytest.raises(DeployError, match="not a list of nodes"):
            read_roster(path, signer(five_keys))
    small = tmp_path / "small"
    make_keys(small, 0)
    with pytest.raises(DeployError, match="contains no node keys"):
        make_roster(small)


def test_rosters_form_a_chain(tmp_path):
    keys = tmp_path / "keys"
    made = []
    for nodes in (3, 4, 6):
        make_keys(keys, nodes)
        made.append(make_roster(keys, keys / ROSTER))
        (keys / ROSTER).write_text(made[-1].model_dump_json())
    first, second, third = made
    assert make_roster(keys, keys / ROSTER) == third  # nothing is new
    assert [len(each.former) for each in made] == [0, 1, 2]
    assert second.continues(first) and third.continues(first) and third.continues(second)
    assert not first.continues(second)
    (keys / ROSTER).write_text(first.model_dump_json())
    fork = make_roster(keys, keys / ROSTER)  # of as many nodes as the third, but after the first
    assert fork.continues(first)
    assert not fork.continues(second) and not third.continues(fork) and fork.digest != third.digest


def test_a_device_keeps_the_roster_it_has_pinned(five_keys, foreign_keys, tmp_path, masked):
    device, path = masked("fedmf", SMALL).devices[101], tmp_path / ROSTER
    Membership.forget(device.store)
    Policy().write(device.store)
    key, ca = five_keys / "nodes" / "node-2", five_keys / "ca.pem"
    assert pin(device.path, key, ca, None) is None  # there is none beside ca.pem
    roster = make_roster(five_keys)
    path.write_text(roster.model_dump_json())
    (tmp_path / ROSTER_PUBLIC).write_bytes((five_keys / ROSTER_PUBLIC).read_bytes())
    assert pin(device.path, key, ca, path).roster == roster
    assert not Policy.read(device.store).allow_plain
    assert pin(device.path, key, ca, None).roster == roster  # a start without the file
    for wrong, words in (
        (lambda: pin(device.path, None, None, None), "only masked rounds"),
        (lambda: pin(device.path, foreign_keys / "nodes" / "node-1", ca, path), "does not have the key"),
    ):
        with pytest.raises(DeployError, match=words):
            wrong()
    other = make_roster(foreign_keys)
    path.write_text(other.model_dump_json())
    with pytest.raises(DeployError, match="not signed with the key that this device has pinned"):
        pin(device.path, key, ca, path, foreign_keys / ROSTER_PUBLIC)
    assert Membership.read(device.store).roster == roster


def test_a_roster_that_does_not_continue_the_pinned_one_is_refused(five_keys, tmp_path, masked):
    device, path = masked("fedmf", SMALL).devices[101], tmp_path / ROSTER
    pinned = Membership.read(device.store)
    from solera.federation.secure.roster import _secret_key

    secret = _secret_key(five_keys / "roster.key")
    fork = pinned.roster.model_copy(update={"nodes": dict(list(pinned.roster.nodes.items())[:4])})
    path.write_text(fork.signed(secret).model_dump_json())
    (tmp_path / ROSTER_PUBLIC).write_bytes((five_keys / ROSTER_PUBLIC).read_bytes())
    key, ca = five_keys / "nodes" / "node-2", five_keys / "ca.pem"
    with pytest.raises(DeployError, match="does not continue"):
        pin(device.path, key, ca, path)
    later = fork.model_copy(update={"former": (pinned.roster.digest,)}).signed(secret)
    path.write_text(later.model_dump_json())
    assert pin(device.path, key, ca, path).roster == later
    path.write_text(pinned.roster.model_dump_json())  # an older list is known, and changes nothing
    assert pin(device.path, key, ca, path).roster == later


def test_a_server_passes_later_rosters_on(masked, five_keys, local):
    from solera.federation.secure.roster import _secret_key

    federation = masked("fedmf", SMALL)
    federation.round()
    old = federation.coordinator.roster
    later = old.model_copy(update={"former": (old.digest,)}).signed(_secret_key(five_keys / "roster.key"))
    federation.server.keep_roster(later)
    federation.restart_server()
    assert federation.round() is None  # nodes have the old list, and say so
    assert federation.round(attempt=1) is not None  # they were asked again, and took the new one
    assert Membership.read(federation.devices[100].store).roster == later
