"""Differential privacy over devices: what is clipped where, what covers it, and what is counted."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from silence import CPU, SHORT, SMALL, Silent, dp, length, silenced, simulated, uploads

from closed_forms import closed_form
from one_process import ITEMS
from solera.core.closed_form import WEIGHTS
from solera.core.errors import ConfigError, RunError
from solera.data.ragged import Ragged
from solera.data.sampling import ClientData
from solera.device.ledger import Ledger
from solera.device.policy import Agreement
from solera.dp.accounting import Releases, epsilon
from solera.dp.noise import Noise, System, SystemNoise
from solera.dp.one_round import PrivateSum
from solera.dp.settings import DP
from solera.engine import OneRound
from solera.federation.common.protocol import Packet, Reason
from solera.federation.server.coordinator import Coordinator
from solera.federation.server.folder import FederationFolder


@pytest.mark.parametrize(
    ("method", "rate"),
    [("fedmf", 1.0), ("fedmf", 0.4), ("pfedrec", 0.4), ("pfedclr", 0.4), ("fedmf+server-optimizer", 0.4)],
)
@pytest.mark.parametrize("clip", [SHORT, 1e6])
def test_without_the_noise_it_is_the_simulator(local, method, rate, clip):
    """pfedclr weights clients by their items, and under differential privacy does not."""
    options = SMALL | {"clients_per_round": rate}
    federation = local(method, options, dp=dp(clip=clip))
    silent = silenced(federation)
    federation.run()
    assert silent.asked == 3
    differences = federation.differences(simulated(federation, rate, clip))
    assert differences
    assert max(differences.values()) < 1e-9, differences
    if clip == SHORT:  # and the clip is not for show
        unclipped = federation.differences(simulated(federation, rate, 1e6))
        assert max(unclipped.values()) > 1e-3


@pytest.mark.parametrize("method", ["fedease", "fedslist"])
def test_without_the_noise_a_method_of_one_round_is_the_simulator(local, histories, method):
    federation = local(method, dp=dp(clip=2.0))
    silenced(federation)
    federation.round()
    known = Ragged.from_lists(histories)
    private = PrivateSum(dp(clip=2.0), Silent())
    data = ClientData(known, known, ITEMS)
    alone = OneRound(closed_form(method), data, device=CPU, dtype=torch.float64, protection=private)
    alone.run_round(0)
    weights = alone.state.shared[WEIGHTS]
    assert torch.allclose(federation.coordinator.state.shared[WEIGHTS], weights, atol=1e-9)
    for _, answer in uploads(federation):
        assert 0 < length(answer) <= 2.0 * len(answer.fields["trained"]) * (1 + 1e-9)


@pytest.mark.parametrize("precision", ["double", "single"])
def test_nodes_clip(local, precision):
    """All that a node sends is at most a clip per user, in doubles; and its outbox says so."""
    federation = local("fedmf", SMALL, precision, dp=dp())
    federation.run(1)
    for order, answer in uploads(federation):
        assert order.fields["clip"] == SHORT
        assert 0 < length(answer) <= SHORT * len(answer.fields["trained"]) * (1 + 1e-9)
        assert answer.arrays["weight"] == [len(answer.fields["trained"])]
        assert answer.arrays["change/items"].dtype == np.float64
    single = [answer for _, answer in uploads(federation)][-1]
    assert len(single.fields["trained"]) == 2
    steps = [each["steps"] for each in federation.devices[100].outbox()]
    assert [step[:1] for step in steps] == [[], ["clip 0.05"], []]


@pytest.mark.parametrize("method", ["fedmf", "pfedclr", "fedease"])
def test_a_node_that_does_not_clip_is_refused(local, method):
    options = {} if method == "fedease" else SMALL | {"clients_per_round": 1.0}
    federation = local(method, options, dp=dp(), min_replies=0.1)
    silenced(federation)

    def forge(node: int, kind: str, packet: Packet) -> Packet:
        if (node, kind) != (101, "train"):
            return packet
        return replace(packet, fields={**packet.fields, "clip": 1e6})

    federation.forge = forge
    federation.exchange(
        "enrol", federation.coordinator.invite(set(federation.devices)), federation.coordinator.enrol
    )
    Ledger(federation.devices[101].store).asked(federation.coordinator.identity.federation, Agreement())
    Ledger(federation.devices[101].store).join(federation.coordinator.identity.federation)  # to no clip
    entry = federation.round()
    assert (entry["nodes"], entry["clients"]) == (2, 7)
    assert federation.rejected() == [Reason.NORM]
    (event,) = [e for e in federation.server.lines("events.jsonl") if e["event"] == "rejected"]
    assert "per user, at most 0.05" in event["message"]


def test_a_node_that_weights_its_users_is_refused(local):
    federation = local("pfedclr", SMALL, dp=dp(), min_replies=0.1)
    silenced(federation)

    def tamper(node: int, kind: str, packet: Packet) -> Packet:
        if (node, kind) != (101, "train"):
            return packet
        return replace(packet, arrays={**packet.arrays, "weight": packet.arrays["weight"] * 2})

    federation.tamper = tamper
    assert federation.round()["nodes"] == 2
    assert federation.rejected() == [Reason.NORM]


def test_the_noise_is_as_stated(local):
    """The same round without and with it, 200 times: 96 numbers each, whose mean over the users it moves."""
    federation = local("fedmf", SMALL, dp=dp(noise=3.0, clip=0.5), rounds=1)
    silenced(federation)
    online = set(federation.devices)
    federation.exchange("enrol", federation.coordinator.invite(online), federation.coordinator.enrol)
    orders = federation.coordinator.begin(0, online)
    answers = {node: federation.ask(node, "train", order) for node, order in orders.items()}
    private, state = federation.coordinator.private, federation.coordinator.state

    def released() -> np.ndarray:
        state.shared = {**before}
        server = state.begin(private.begin(11, 0))
        federation.coordinator.round.server = server
        for node, answer in answers.items():
            order = federation.coordinator.round.orders[node]
            numbers = np.array(order.numbers)
            bounds = federation.coordinator._bounds(order, len(numbers))
            state.add(server, numbers, state.read(answer.arrays, bounds))
        state.conclude(server, 0)
        return state.shared["items"].numpy()

    before = state.shared
    silent = released()
    private._randomness = System()
    drawn = np.array([(released() - silent).ravel() for _ in range(200)]) * 11  # of the sum
    n, std = drawn.size, 3.0 * 0.5
    assert n == 200 * ITEMS * 4
    assert abs(drawn.mean()) < 6 * std / math.sqrt(n)
    assert abs(drawn.var() / std**2 - 1) < 6 * math.sqrt(2 / n)
    one = drawn[:, 0]
    assert abs(one.var() / std**2 - 1) < 6 * math.sqrt(2 / len(one))


def test_noise_and_coins_come_from_the_operating_system(local):
    federation = local("fedmf", SMALL | {"clients_per_round": 0.4}, dp=dp(), rounds=2)
    private = federation.coordinator.private
    assert isinstance(private._randomness, System)
    assert isinstance(private._randomness.noise(0), SystemNoise)
    ends, asked = [], []
    for _ in range(2):
        other = local("fedmf", SMALL | {"clients_per_round": 0.4}, dp=dp(), rounds=1)
        other.round()
        ends.append(other.coordinator.state.shared["items"])
    assert not torch.equal(*ends)
    everybody = np.arange(11)
    counts = np.zeros(11)
    for number in range(4000):
        chosen = private.choose(everybody, number)
        asked.append(len(chosen))
        counts[chosen] += 1
    assert np.abs(counts - 1600).max() < 6 * math.sqrt(4000 * 0.4 * 0.6)
    assert abs(np.var(asked) - 11 * 0.4 * 0.6) < 0.5  # coins of their own: binomial, not a fixed number
    statement = json.loads((federation.server.path / "privacy.json").read_text())
    assert statement["randomness"] == "operating system"
    assert statement["sampling"].startswith("Poisson, each user with probability 0.4 a round")


def test_all_nodes_are_asked_whoever_was_drawn(local):
    """And a round in which nobody was drawn counts: nothing but noise."""
    federation = local("fedmf", SMALL | {"clients_per_round": 0.4}, dp=dp())
    before = federation.coordinator.state.shared["items"].clone()

    class Nobody(Silent):
        def noise(self, round_: int) -> Noise:
            return SystemNoise()

        def coins(self, count: int, round_: int) -> np.ndarray:
            return np.full(count, 0.999)

    federation.coordinator = Coordinator(federation.server, Nobody())
    entry = federation.round()
    assert (entry["clients"], entry["wanted"], entry["nodes"]) == (0, 0, 3)
    assert all(answer.arrays == {} for _, answer in uploads(federation))
    moved = (federation.coordinator.state.shared["items"] - before) * 0.4 * 11
    assert abs(float(moved.var()) / (2 * SHORT) ** 2 - 1) < 6 * math.sqrt(2 / moved.numel())


def test_a_void_attempt_releases_nothing(local):
    federation = local("fedmf", SMALL, dp=dp(), min_replies=0.6)
    silent = silenced(federation)
    federation.tamper = lambda node, kind, p: None if node != 100 and kind == "train" else p
    assert federation.round(attempt=0) is None  # node 100 has 5 of 11 users, and is one of three
    assert silent.asked == 1  # for what was never drawn from
    federation.tamper = lambda node, kind, p: None if node == 100 and kind == "train" else p
    entry = federation.round(attempt=1)  # 6 of 11 users would not be 0.6 of them
    assert (entry["nodes"], entry["clients"]) == (2, 6)
    (void,) = [e for e in federation.server.lines("events.jsonl") if e["event"] == "void"]
    assert (void["nodes"], void["needed"]) == (1, 2)
    sent = [order.arrays["shared/items"] for order, _ in uploads(federation)]
    assert all(np.array_equal(sent[0], each) for each in sent)


def test_what_is_sent_was_saved_before(local, monkeypatch):
    """Whenever the server is killed, all that nodes have ever got is one state per round."""
    federation = local("fedmf", SMALL, dp=dp(), rounds=3)
    federation.round()

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:  # after the noise was drawn, before it was saved
        patched.setattr(FederationFolder, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            federation.round()
    federation.restart_server()
    federation.round()
    with monkeypatch.context() as patched:  # after it was saved
        patched.setattr(FederationFolder, "add_round", killed)
        with pytest.raises(KeyboardInterrupt):
            federation.round()
    federation.restart_server()
    assert federation.coordinator.progress.rounds_done == 3
    federation.finish()
    seen: dict[object, set[bytes]] = {}
    for _, kind, packet, _ in federation.sent:
        if kind != "enrol":
            seen.setdefault(packet.fields["round"], set()).add(packet.arrays["shared/items"].tobytes())
    assert {round_: len(states) for round_, states in seen.items()} == {0: 1, 1: 1, 2: 1, None: 1}


def test_no_round_beyond_those_accounted_for(local):
    federation = local("fedmf", SMALL, dp=dp(), rounds=2)
    path = federation.server.path
    federation.round()
    with pytest.raises(RunError, match="was computed for 2 rounds, not for 3"):
        FederationFolder.prepare(path, None, {"rounds": 3}, resume=True)
    with pytest.raises(RunError, match="cannot change after its first round"):
        FederationFolder.prepare(path, None, {"dp": dp(noise=1.0)}, resume=True)
    FederationFolder.prepare(path, None, {"dp": dp(), "deadline": 9.0}, resume=True)  # the same again
    federation.restart_server()
    federation.round()
    with pytest.raises(RunError, match="all 2 rounds that the privacy budget ε covers are done"):
        federation.round()
    settings = json.loads((path / "settings.json").read_text())
    settings["settings"]["rounds"] = 5  # by hand
    (path / "settings.json").write_text(json.dumps(settings))
    with pytest.raises(ConfigError, match="gives ε = "):
        federation.restart_server()


def test_a_federation_that_began_without_cannot_go_on_with(local):
    federation = local("fedmf", SMALL)
    federation.round()
    with pytest.raises(RunError, match="cannot change after its first round"):
        FederationFolder.prepare(federation.server.path, None, {"dp": dp()}, resume=True)
    assert federation.server.privacy is None


@pytest.mark.parametrize("settings", [{"dp": dp()}, {}], ids=["private", "plain"])
def test_an_older_checkpoint_is_not_gone_on_from(local, tmp_path, settings):
    federation = local("fedmf", SMALL, **settings)
    federation.round()
    shutil.copytree(federation.server.path / "checkpoint-1", tmp_path / "copy")
    federation.round()
    shutil.rmtree(federation.server.path / "checkpoint-2")
    shutil.copytree(tmp_path / "copy", federation.server.path / "checkpoint-1")
    with pytest.raises(RunError, match="2 rounds are in the history, but the checkpoint is of round 1"):
        federation.restart_server()


def test_what_is_guaranteed_is_stated(local):
    wanted = DP(epsilon=8, delta=1e-5, clip=SHORT)
    federation = local("fedmf", SMALL | {"clients_per_round": 0.4}, dp=wanted, rounds=3)
    stated = federation.server.privacy
    assert (stated["epsilon"], stated["delta"], stated["rounds"]) == (8, 1e-5, 3)
    assert (stated["unit"], stated["mode"], stated["accountant"]) == ("user", "central", "rdp")
    found = epsilon(stated["noise_multiplier"], Releases(0.4, 3), 1e-5, "rdp")
    assert 7.5 < found <= 8
    assert federation.coordinator.settings.dp.noise == stated["noise_multiplier"]
    assert "answer in time" in stated["not_covered"][0]


@pytest.mark.parametrize(
    ("method", "options", "settings", "why"),
    [
        ("fedem", {}, {}, "its server needs single uploads"),
        ("fedhist", {}, {}, "changed a row"),
        ("fedmf", {"clients_per_round": 5}, {}, "needs a sampling probability"),
        ("fedmf", {}, {"dp": dp(mode="local")}, "mode=local is not supported on devices yet"),
        ("fedmf", {}, {"dp": dp(mode="distributed")}, "if the server sees nothing but sums"),
        ("fedmf", {}, {"dp": dp(adaptive=0.5)}, "adaptive clip is not supported on devices yet"),
        ("fedmf", {}, {"secure_aggregation": True}, "noise that the nodes add themselves"),
    ],
)
def test_what_is_refused(local, method, options, settings, why):
    with pytest.raises(ConfigError, match=why):
        local(method, SMALL | options, **{"dp": dp()} | settings)


@pytest.mark.parametrize("option", ["over_selection", "max_norm"])
def test_options_that_the_guarantee_leaves_no_room_for(local, tmp_path, option):
    federation = local("fedmf", SMALL)
    with pytest.raises(ConfigError, match="cannot be combined with --dp"):
        FederationFolder.prepare(tmp_path / "x", federation.bundle, {"dp": dp(), option: 2.0}, resume=False)
    assert not (tmp_path / "x").exists()


def test_a_node_declines_to_clip_for_a_server_that_wants_single_uploads(local):
    federation = local("fedem", SMALL)
    federation.forge = lambda node, kind, p: (
        replace(p, fields={**p.fields, "clip": 1.0}) if kind == "train" else p
    )
    assert federation.round() is None
    assert set(federation.rejected()) == {Reason.DECLINED}
