"""What is taken and what is not, what lasts, and how a federation changes over time; without a network."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from one_process import ITEMS
from solera.core.closed_form import ClosedForm
from solera.core.errors import DeviceError, RunError
from solera.device.bundle import Item
from solera.device.device import Device
from solera.device.ledger import Ledger
from solera.device.publish import extend, start
from solera.federation.common.protocol import PROTOCOL, Packet, Reason, declined
from solera.federation.common.settings import Settings
from solera.federation.common.uploads import declared
from solera.federation.node.node import Node
from solera.federation.operate.figures import Status
from solera.federation.server.folder import FederationFolder
from solera.methods import find, names

SMALL = {"embedding_size": 4}


def spoil(packet: Packet, name: str, values) -> Packet:
    return replace(packet, arrays={**packet.arrays, name: values})


def other(packet: Packet, **fields) -> Packet:
    return replace(packet, fields={**packet.fields, **fields})


def not_a_number(packet: Packet) -> Packet:
    values = packet.arrays["change/items"].copy()
    values[0, 0] = np.nan
    return spoil(packet, "change/items", values)


WRONG = {
    "another federation": (lambda p: other(p, federation="0" * 32), Reason.FEDERATION),
    "another round": (lambda p: other(p, round=p.fields["round"] + 1), Reason.ROUND),
    "another attempt": (lambda p: other(p, attempt=1), Reason.ROUND),
    "another catalogue": (lambda p: other(p, version=2), Reason.CATALOGUE),
    "a user who was not asked": (lambda p: other(p, trained=[*p.fields["trained"], 77]), Reason.MEMBERS),
    "a user twice": (lambda p: other(p, trained=p.fields["trained"] * 2), Reason.MEMBERS),
    "a user who is not there": (lambda p: other(p, slots=[]), Reason.MEMBERS),
    "a field too many": (lambda p: other(p, mood="good"), Reason.MALFORMED),
    "a field of another type": (lambda p: other(p, round="0"), Reason.MALFORMED),
    "an array too many": (lambda p: spoil(p, "change/user", np.zeros(4)), Reason.NAMES),
    "an array too few": (
        lambda p: replace(p, arrays={n: v for n, v in p.arrays.items() if n != "weight"}),
        Reason.NAMES,
    ),
    "other rows than said": (lambda p: spoil(p, "rows", p.arrays["rows"][:-1]), Reason.SHAPES),
    "another width": (lambda p: spoil(p, "change/items", p.arrays["change/items"][:, :3]), Reason.SHAPES),
    "another type": (
        lambda p: spoil(p, "change/items", p.arrays["change/items"].astype("<f4")),
        Reason.SHAPES,
    ),
    "rows beyond the catalogue": (lambda p: spoil(p, "rows", p.arrays["rows"] + ITEMS), Reason.SHAPES),
    "rows twice": (lambda p: spoil(p, "rows", p.arrays["rows"] * 0), Reason.SHAPES),
    "not a number": (not_a_number, Reason.NOT_FINITE),
    "a change too large": (lambda p: spoil(p, "change/items", p.arrays["change/items"] + 1e6), Reason.NORM),
    "a weight that is not the users'": (
        lambda p: spoil(p, "weight", p.arrays["weight"] * 50),
        Reason.NORM,
    ),
    "a row that outweighs them": (
        lambda p: spoil(p, "row_weights", p.arrays["row_weights"] * 50),
        Reason.NORM,
    ),
    "a refusal": (lambda p: declined("no"), Reason.DECLINED),
    "a refusal of an older node": (lambda p: Packet({"declined": "no"}), Reason.PROTOCOL),
    "an answer of a newer node": (lambda p: other(p, protocol=PROTOCOL + 2), Reason.PROTOCOL),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_refused_and_the_round_goes_on(local, what):
    """The outcome is that of a round in which the node had not been there."""
    change, reason = WRONG[what]
    federation, without = local("fedmf", SMALL), local("fedmf", SMALL)
    federation.tamper = lambda node, kind, p: change(p) if kind == "train" and node == 101 else p
    without.tamper = lambda node, kind, p: None if kind == "train" and node == 101 else p
    for each in (federation, without):
        entry = each.round()
        assert (entry["clients"], entry["nodes"]) == (7, 2)
    assert federation.rejected() == [reason]
    assert federation.server.lines("history.jsonl")[0]["rejected"] == {str(reason): 1}
    expected = without.coordinator.state.shared["items"]
    assert np.array_equal(federation.coordinator.state.shared["items"], expected)


def test_an_answer_counts_once(local):
    federation = local("fedmf", SMALL)
    online = set(federation.devices)
    federation.exchange("enrol", federation.coordinator.invite(online), federation.coordinator.enrol)
    orders = federation.coordinator.begin(0, online)
    federation.exchange("train", orders, federation.coordinator.take)
    federation.exchange("train", {100: orders[100]}, federation.coordinator.take)
    federation.coordinator.close()
    assert federation.rejected() == [Reason.TWICE]
    assert max(federation.differences(federation.simulated(1)).values()) > 0  # not settled yet
    federation.finish()
    assert max(federation.differences(federation.simulated(1)).values()) < 1e-9


@pytest.mark.parametrize("method", ["fedmf", "fedem"])
def test_a_lost_update_leaves_no_trace(local, method):
    """A node whose answers of round 2 are lost is as if it had not been asked: on the server and at home."""
    lossy, away = local(method, SMALL), local(method, SMALL)
    lossy.tamper = lambda node, kind, p: (
        None if (node, kind) == (102, "train") and p.fields["round"] == 1 else p
    )
    for round_ in range(3):
        assert lossy.round() is not None
        assert away.round({100, 101} if round_ == 1 else None) is not None
    for each in (lossy, away):
        each.finish()
    for name, values in away.coordinator.state.shared.items():
        assert np.array_equal(lossy.coordinator.state.shared[name], values), name
    for user in ("u9", "u10"):
        kept, expected = (each.devices[102].personal(user) for each in (lossy, away))
        assert kept.keys() == expected.keys() and kept
        assert all(np.array_equal(kept[name], expected[name]) for name in kept)


@pytest.mark.parametrize("method", ["fedmf", "fedem", "fedmf+server-optimizer"])
def test_a_server_that_was_killed_goes_on_to_the_same_end(local, method):
    federation = local(method, SMALL, over_selection=1.0)
    federation.round()
    # Killed in mid-round: two nodes have trained, and nobody will ever take their answers.
    orders = federation.coordinator.begin(0, set(federation.devices))
    for node in (100, 102):
        federation.ask(node, "train", orders[node])
    federation.restart_server()
    federation.round()
    # Killed after the round was saved, before anybody was told.
    federation.restart_server()
    federation.round()
    federation.finish()
    assert [line["round"] for line in federation.server.lines("history.jsonl")] == [1, 2, 3]
    assert max(federation.differences(federation.simulated()).values()) < 1e-9


@pytest.mark.parametrize("method", ["fedmf", "fedem"])
def test_a_round_with_too_few_answers_does_not_count(local, method):
    federation = local(method, SMALL, min_replies=0.6)
    federation.round()
    federation.tamper = lambda node, kind, p: None if node != 101 and kind == "train" else p
    assert federation.round(attempt=0) is None
    federation.tamper = lambda node, kind, p: p
    assert federation.round(attempt=1) is not None
    assert federation.round() is not None
    federation.finish()
    assert [line["event"] for line in federation.server.lines("events.jsonl")].count("void") == 1
    assert max(federation.differences(federation.simulated()).values()) < 1e-9


def test_more_are_asked_than_needed_and_the_first_count(local):
    federation = local("fedmf", SMALL | {"clients_per_round": 0.5}, sizes=(1,) * 11, over_selection=1.3)
    online = set(federation.devices)
    federation.exchange("enrol", federation.coordinator.invite(online), federation.coordinator.enrol)
    orders = federation.coordinator.begin(0, online)
    now = federation.coordinator.round
    assert (now.wanted, len(orders)) == (6, 8)
    for node, order in orders.items():
        federation.coordinator.take(node, federation.ask(node, "train", order))
        if now.enough:
            break
    entry = federation.coordinator.close()
    assert (entry["clients"], entry["rejected"]) == (6, {})


def test_the_same_seed_asks_the_same_users(local):
    asked = []
    for _ in range(2):
        federation = local("fedmf", SMALL | {"clients_per_round": 0.4})
        federation.round()
        asked.append([p.fields["numbers"] for _, kind, p, _ in federation.sent if kind == "train"])
    assert asked[0] == asked[1]
    assert sum(map(len, asked[0])) == 6  # 0.4 of 11 users, and a third more


@pytest.mark.parametrize("method", names())
def test_what_leaves_is_what_is_declared_and_in_the_outbox(local, method):
    federation = local(method, SMALL if not isinstance(find(method), ClosedForm) else {})
    federation.run(1)
    wanted = declared(federation.coordinator.method, np.dtype("<f8"))
    for _, kind, _, answer in federation.sent:
        fields = {
            "enrol": {"protocol", "federation", "version", "catalogue", "method", "slots"},
            "train": {"protocol", "federation", "round", "attempt", "version", "trained", "slots", "peak"},
        }
        assert answer.fields.keys() == fields.get(kind, fields["train"])
        expected = wanted if kind == "train" and answer.fields["trained"] else {}
        assert answer.arrays.keys() == expected.keys()
        assert {
            name.removeprefix("change/") for name in answer.arrays if name.startswith("change/")
        } <= federation.coordinator.state.shared.keys()
    for node, device in federation.devices.items():
        written = [(each["sha256"], each["bytes"]) for each in device.outbox()]
        really = [(a.digest, len(a.to_bytes())) for n, _, _, a in federation.sent if n == node]
        assert written == really


def test_a_new_user_joins_and_one_leaves(local, histories):
    federation = local("fedem", SMALL)
    federation.round()
    federation.devices[100].add_all([("3", 1), ("7", 2), ("9", 3)], "newcomer", "test")
    assert federation.devices[100].recommend(3, user="newcomer")  # before any round of theirs
    federation.round()
    entry = federation.round()
    assert entry["clients"] == 12
    number = max(federation.user_of())
    assert federation.user_of()[number] == (100, "newcomer")
    assert federation.devices[100].kept("newcomer")

    former = {user: number for number, (_, user) in federation.user_of().items()}
    federation.devices[100].forget(user="u1")
    federation.round()
    entry = federation.round()
    assert entry["clients"] == 11
    assert "u1" not in [user for _, user in federation.user_of().values()]
    initial = federation.coordinator.state.initial(federation.coordinator.method, 20)
    for name, held in federation.coordinator.state.held.items():
        assert np.array_equal(held[former["u1"]], initial.personal.tables[name][former["u1"]])
    federation.devices[100].add_all([("1", 1), ("2", 2)], "u1", "test")  # and back: somebody new
    federation.round()
    federation.round()
    assert max(federation.user_of()) > number


def test_new_items_and_nodes_that_do_not_have_them_yet(local, tmp_path):
    federation = local("fedmf", SMALL)
    federation.round()
    new = extend(federation.bundle, [Item("new", "A new film", None)], tmp_path / "b.bundle", federation.key)
    federation.server.add_bundle(new)
    federation.restart_server()
    assert federation.coordinator.n_items == ITEMS + 1

    federation.devices[100].update(new.path)
    federation.devices[100].add("new", user="u0")
    entry = federation.round()  # node 100 was asked with the old catalogue: it says that it has a newer one
    assert entry["rejected"] == {"declined": 1}
    assert entry["clients"] == 6
    before = federation.coordinator.state.shared["items"][ITEMS].clone()
    entry = federation.round()
    assert (entry["rejected"], entry["clients"]) == ({}, 11)
    assert not np.array_equal(federation.coordinator.state.shared["items"][ITEMS], before)  # u0 did
    assert federation.coordinator.state.shared["items"].shape == (ITEMS + 1, 4)
    for node, newest in ((100, 2), (101, 2)):
        settings = federation.devices[node].store.settings()
        assert int(settings["newest_catalogue"]) == newest
    old = [a for n, kind, _, a in federation.sent if (n, kind) == (101, "train")][-1]
    assert old.fields["version"] == 1

    with pytest.raises(RunError, match="no later catalogue"):
        federation.server.add_bundle(new)


def test_a_node_with_another_catalogue_of_the_same_version_is_not_taken(local, catalogue, key, tmp_path):
    federation = local("fedmf", SMALL)
    strange = start("fedmf", catalogue[:-1], tmp_path / "s.bundle", key, options=SMALL, precision="double")
    federation.add_node(103, {"x": ["1", "2"]}, strange)
    assert federation.round()["clients"] == 11
    assert federation.rejected() == [Reason.CATALOGUE]


def test_a_node_that_was_away_for_long(local):
    federation, present = local("fedem", SMALL, rounds=12), local("fedem", SMALL, rounds=12)
    for number in range(10):
        federation.round(None if number in (0, 9) else {100, 101})
        present.round(None if number in (0, 9) else {100, 101})
    assert federation.coordinator.progress.ledger.nodes[102].behind == 0
    assert federation.round()["clients"] == 11


def test_a_full_disk_is_a_refusal_and_nothing_is_lost(local):
    federation = local("fedmf", {"embedding_size": 64})
    online = set(federation.devices)
    federation.exchange("enrol", federation.coordinator.invite(online), federation.coordinator.enrol)
    device = federation.devices[101]
    before = device.store.rows("SELECT COUNT(*) FROM interactions")[0][0]
    device.store.wipe()
    pages = device.store.rows("PRAGMA page_count")[0][0]
    device.store.connection.execute(f"PRAGMA max_page_count = {pages}")
    sent = len(device.outbox())
    entry = federation.round()
    assert entry["rejected"] == {"declined": 1}
    events = [line for line in federation.server.lines("events.jsonl") if line["event"] == "rejected"]
    assert "its log says why" in events[-1]["message"]
    assert [each["kind"] for each in device.outbox()[sent:]] == ["declined"]
    device.store.connection.execute("PRAGMA max_page_count = 1000000")
    assert federation.round()["clients"] == 11
    assert device.store.rows("SELECT COUNT(*) FROM interactions")[0][0] == before


def test_an_order_that_is_not_meant_for_the_node_is_declined(local):
    federation = local("fedmf", SMALL)
    federation.round()
    orders = federation.coordinator.begin(0, set(federation.devices))
    node = Node(federation.devices[100], threads=1)
    for packet, words in (
        (other(orders[100], federation="1" * 32), "not enrolled"),
        (other(orders[100], version=7), "catalogue 7"),
        (other(orders[100], secret="x"), "field secret"),
        (spoil(orders[100], "shared/user", np.zeros(4)), "not declared: shared/user"),
        (replace(orders[100], arrays={}), "missing: shared/items"),
        (spoil(orders[100], "shared/items", np.full((ITEMS, 4), np.inf)), "not finite"),
    ):
        sent = len(federation.devices[100].outbox())
        answer = node.answer("train", packet)
        assert words in answer.fields["declined"]
        assert answer.arrays == {}
        assert [each["kind"] for each in federation.devices[100].outbox()[sent:]] == ["declined"]


def test_another_federation_begins_anew(local):
    first, second = local("fedem", SMALL), local("fedem", SMALL)
    first.run()
    second.devices[100].close()
    shutil.rmtree(second.devices[100].path)
    shutil.copytree(first.devices[100].path, second.devices[100].path)
    second.devices[100] = Device.open(second.devices[100].path)
    Ledger(second.devices[100].store).join_next()
    second.run()
    ((name, held),) = second.coordinator.state.held.items()
    for number, (node, user) in second.user_of().items():  # the server knows everybody's table as it is
        assert np.allclose(held[number], second.devices[node].personal(user)[name], atol=1e-9)


def test_negatives_by_popularity_are_not_for_devices(local):
    with pytest.raises(DeviceError, match="popularity, which a device does not know"):
        local("fedmf+popular-negatives", SMALL)


def test_folders(local, tmp_path):
    federation = local("fedmf", SMALL)
    with pytest.raises(RunError, match="already contains a federation"):
        FederationFolder.create(federation.server.path, federation.bundle, Settings())
    for look in (FederationFolder.open, Status):
        with pytest.raises(RunError, match="contains no federation"):
            look(tmp_path / "nowhere")
    line = json.dumps({"round": 1})
    (federation.server.path / "history.jsonl").write_text(f"{line}\n{line[:4]}")
    assert federation.server.lines("history.jsonl") == [{"round": 1}]
