"""What an owner reads before agreeing is what the device enforces, in every round and every night."""

from __future__ import annotations

import json
import math
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attack import attack
from opened import declined, history_in, keep_opened

from in_process import run
from one_process import ITEMS, Local
from solera.core.errors import ConfigError, DeployError
from solera.device.device import Device
from solera.device.ledger import Ledger
from solera.device.policy import Agreement, Policy, Request, Spent, objections
from solera.federation.common.authority import make_keys
from solera.federation.common.invitation import Invitation
from solera.federation.common.protocol import PROTOCOL, Evaluation, Packet
from solera.federation.node import accepted
from solera.federation.node import masked_round as on_nodes
from solera.federation.node.masked_round import open_node
from solera.federation.node.membership import Membership
from solera.federation.node.node import Node
from solera.federation.node.worker import answer
from solera.federation.operate.inviting import invitation
from solera.federation.secure.masked import values_of
from solera.federation.server import masked_round as secure_round
from solera.federation.server.federation import FederationServer
from solera.federation.server.plan import ServePlan
from solera.service import taking_part

NOISE = {"noise": 2.0, "delta": 1e-5, "clip": 1.0, "mode": "distributed"}
DEFAULTS = Policy(allow_plain=False)  # of a device that has a list of nodes


@pytest.fixture(scope="session")
def many_keys(tmp_path_factory) -> Path:
    """Of 24 households."""
    folder = tmp_path_factory.mktemp("many-keys")
    make_keys(folder, 24)
    return folder


def diagonal(values: np.ndarray) -> list[float]:
    """Of a symmetric matrix whose upper half is in a vector."""
    begins = np.cumsum([0, *range(ITEMS, 1, -1)])
    return values[begins].tolist()


# Consent


@attack(
    "lying server",
    "An invitation that promises masked sums makes a device that answers nothing else.",
    before="the page showed 50 devices and ε = 1; plain rounds were answered, the history read exactly",
)
def test_a_promise_of_masks_without_a_list_of_devices(world, five_keys, reached):
    """Before: the server read the history [3, 7, 11, 20] from a plain round."""
    federation = world(masked=False, sizes=(1, 1, 1))
    device = federation.add_node(103, {"me": ["3", "7", "11", "20"]})
    Ledger(device.store).join_next(False)
    made = invitation(
        five_keys, "new", "127.0.0.1:9", "films", Agreement(masked=True, least_nodes=50, epsilon=1.0)
    )
    with pytest.raises(DeployError, match="does not say who signs"):
        taking_part.agree(device, made.model_copy(update={"roster_key": None}).link())
    assert accepted.accepted(device.path) is None
    shown = taking_part.asked(device, made.link())["asks"]
    assert shown[:2] == [
        "Your upload is hidden in a sum over at least 50 devices and 10 people.",
        "Every device adds noise. Your device spends at most ε = 1 over all rounds.",
    ]
    taking_part.agree(device, made.link())
    federation.round()  # of a server that offers plain rounds all the same
    said = [a.fields.get("declined") for node, _, _, a in federation.sent if node == 103]
    assert said == ["the owner of this device has not decided about this federation yet"]
    weaker = Agreement(masked=True, least_nodes=10, noise=2.0, clip=1.0, epsilon=1.0)
    assert Ledger(device.store).asked("e" * 32, weaker) == "asked"
    kept = weaker.model_copy(update={"least_nodes": 50})
    assert Ledger(device.store).asked("e" * 32, kept) == "joined"  # the control: what was promised is taken
    reached("refused without a signer; with one, the device declines every plain offer")


@pytest.mark.parametrize("less", ["clip", "noise", "both", "nodes", "users", "groups"])
@attack(
    "lying server",
    "Terms of a round that protect less than the agreed offer are declined, whatever the policy says.",
    before="12 devices that agreed to clip 1 and noise 2 opened a sum with neither",
)
def test_terms_below_the_agreed_offer(world, monkeypatch, less, reached):
    """Before: the opened sum told how many users it was over, and had no noise."""
    federation, opened = world(sizes=(1,) * 12, dp=NOISE, rounds=5, threshold=0.9), keep_opened(monkeypatch)
    coordinator = federation.coordinator
    federation.exchange("enrol", coordinator.invite(set(federation.devices)), coordinator.enrol)
    for device in federation.devices.values():  # whatever the policy alone would allow
        Policy(least_nodes=2, least_users=1, least_share=0.01, sums_without_noise=9).write(device.store)
    lies = {
        "clip": {"clip": 2.0},
        "noise": {"noise": 1.0},
        "both": {"clip": None, "noise": None},
        "users": {"least_users": 1},
    }
    agreed = Ledger(federation.devices[100].store).agreed(coordinator.identity.federation)
    assert (agreed.clip, agreed.noise, agreed.least_nodes, agreed.groups) == (1.0, 2.0, 3, 1)

    def forge(node, kind, packet):
        if kind != "advertise":
            return packet
        fields = json.loads(json.dumps(packet.fields)) | lies.get(less, {})
        if less == "nodes":
            fields["groups"][0]["threshold"] = 2
        if less == "users":
            for member in fields["groups"][0]["members"]:
                member["users"] = 0
        if less == "groups":
            fields["groups"] = [fields["groups"][0], fields["groups"][0] | {"members": []}]
        return replace(packet, fields=fields)

    federation.forge = forge
    federation.round()
    assert opened == []
    assert len(declined(federation)) >= 12
    federation.forge = lambda node, kind, packet: packet
    federation.round(attempt=1)
    assert len(opened) == 1  # the control: what was agreed to is answered
    reached("declined by all; nothing opened")


@pytest.mark.parametrize("noise", [1e-3, 0.49, 0.5, 2.0])
@attack(
    "lying server",
    "A sum is over as many users as its owner requires, whatever noise the terms name.",
    before="12 users were summed under a policy of 50, with noise of 0.001 clips",
)
def test_few_users_under_noise(world, monkeypatch, noise, reached):
    """Before: one of five users of every node was asked, and each node of five took part."""
    federation = world(sizes=(5,) * 12, dp=NOISE | {"noise": noise}, rounds=1, threshold=0.9)
    opened = keep_opened(monkeypatch)
    for device in federation.devices.values():
        Policy(least_nodes=3, least_users=50, sums_without_noise=9).write(device.store)
    choose = federation.coordinator.private.choose
    federation.coordinator.private.choose = lambda able, number: able[::5]
    federation.round()
    assert opened == []
    assert {words.split(";")[0] for words in declined(federation)} == {"a sum over 12 users"}
    federation.coordinator.private.choose = choose
    federation.round(attempt=1)
    assert len(opened) == 1  # the control: all 60 are asked
    reached("declined: 12 users are counted, 50 are required")


@attack(
    "lying server",
    "The number of groups cannot make a cohort smaller: the least share is of the whole roster.",
    before="10 of 1,000 nodes in one of 50 groups were enough for the default policy",
)
def test_groups_that_shrink_a_cohort(reached):
    """Before: no objection to 10 nodes; with a fifth of 1,000 nodes, 7.5 % of the rest could be isolated."""
    ten = Request(nodes=10, roster=1000, users=10, clip=1.0, noise=2.0, groups=50)
    (said,) = objections(Policy(), ten, Spent())
    assert said == "a sum over 10 of 1000 nodes; this device requires 500"
    agreed = Policy(least_share=0.01).under(Agreement(masked=True, groups=5))
    assert "50 groups; this device allows 5" in list(objections(agreed, ten, Spent()))
    assert not list(objections(agreed, replace(ten, groups=5), Spent()))
    reached("declined: 500 of 1,000 are required, and no more groups than agreed")


@attack(
    "file",
    "Text from outside is shown without characters that command a terminal.",
    before="a federation's name hid the true sentences with ESC[8m and added a false one",
)
def test_a_name_that_commands_the_terminal(five_keys, device, reached):
    """Before: stdout had `...hidden in a sum over 50 devices.\\x1b[8m` before what was really asked."""
    name = "films, asks:\n  Your upload is hidden in a sum over 50 devices.\x1b[8m"
    made = invitation(five_keys, "new", "h.example:80", name, Agreement())
    path = device.path.parent / "evil.invitation"
    path.write_text(made.model_dump_json())
    said = run("device", "join", device.path, path, answers="n\n")
    assert "\x1b" not in said
    first, second = said.splitlines()[:2]
    assert first.startswith("a federation that calls itself 'films, asks:   Your upload")
    assert first.endswith("[8m', at h.example:80, asks:")
    assert second.strip().startswith("The server sees what your device uploads.")
    with pytest.raises(ConfigError, match="not HOST:PORT"):
        Invitation.parse(made.model_copy(update={"server": "evil\r\nX: y:80"}).model_dump_json())
    reached("one line, no control characters; such an address is refused")


# Sums that are opened more than once


@attack(
    "lying server",
    "A device helps to open one sum without noise, and no second one over other members.",
    before="the victim's history was read exactly from two honest sums, as soon as it was off one night",
)
def test_a_closed_form_every_night(world, many_keys, monkeypatch, reached):
    """Before: 24 households, default policy, an honest server; night 2 without one told its history."""
    opened: list[np.ndarray] = []
    conclude = secure_round.MaskedRound.conclude

    def keep(self):
        opened.extend(session.sum.values["sum/gram/0/0"].copy() for session in self._sessions)
        return conclude(self)

    monkeypatch.setattr(secure_round.MaskedRound, "conclude", keep)
    monkeypatch.setattr(FederationServer, "fixed_cohort", [])  # a server that does not keep to it
    everybody = set(range(100, 114))
    nights = [everybody, everybody - {107}, everybody]
    for policy, sums in (
        (Policy(allow_plain=False), 1),
        (Policy(sums_without_noise=9, allow_plain=False), 1),
    ):
        opened.clear()
        federation = world("fedease", sizes=(1,) * 14, keys=many_keys, least_nodes=10)
        for device in federation.devices.values():
            policy.write(device.store)
        for night in nights:
            federation.round(online=night)
            federation.restart_server()
        assert len(opened) == sums
    with monkeypatch.context() as without:  # the control: without the rules, the difference is a history
        without.setattr("solera.federation.node.approval.Approval.check_cohort", lambda *_: None)
        without.setattr(Node, "limits", lambda node, federation: Policy(sums_without_noise=9))
        opened.clear()
        federation = world("fedease", sizes=(1,) * 14, keys=many_keys, least_nodes=10)
        for night in nights:
            federation.round(online=night)
            federation.restart_server()
        read = np.flatnonzero(np.abs(diagonal(opened[0] - opened[1])) > 1e-6).tolist()
        assert read == sorted(federation.histories[7])
    reached("the second night is declined by all, by the limit and by the cohort")


@attack(
    "lying server",
    "A new round number, or a state that moved a little, is no new question.",
    before="AUC 0.88 to 0.98 of the victim's items from 24 rounds with and 24 without it",
)
def test_many_rounds_from_nearly_one_state(world, monkeypatch, reached):
    """Before: a state moved by 1e-9 and a new number made every round a new one; nobody declined."""
    monkeypatch.setattr(FederationServer, "fixed_cohort", [])
    counts = {}
    for policy in (DEFAULTS, DEFAULTS.model_copy(update={"sums_without_noise": 100})):
        opened = keep_opened(monkeypatch)
        federation = world(sizes=(1,) * 13, threshold=0.8, rounds=100, least_nodes=10)
        for device in federation.devices.values():
            policy.model_copy(update={"least_share": 0.3}).write(device.store)
        coordinator, found = federation.coordinator, {True: 0, False: 0}
        for round_ in range(8):
            with_victim = round_ % 2 == 0
            opened.clear()
            coordinator.pending = None
            coordinator.progress.number = round_
            for tensor in coordinator.state.shared.values():
                tensor.view(-1)[0] += 1e-9
            everybody = set(federation.devices)
            federation.round(online=everybody if with_victim else everybody - {100})
            found[with_victim] += len(opened)
        counts[policy.sums_without_noise] = found
    assert counts == {1: {True: 1, False: 0}, 100: {True: 4, False: 0}}
    reached("no sum without the victim is opened, however many its owner allows")


@attack(
    "lying server",
    "Noise without a limit of ε counts as none: it averages out.",
    before="41 sums with noise of half a clip, by which a history was read; nobody declined",
)
def test_noise_that_averages_out(world, monkeypatch, reached):
    """Before: an owner who had read "No noise is added … at most 1 sum" answered 41 rounds with noise."""
    agreed, plain = Ledger.agreed, {"noise": None, "epsilon": None, "clip": None, "sums": None}
    for epsilon, sums in ((None, 1), (1000.0, 3)):
        opened = keep_opened(monkeypatch)
        federation = world(sizes=(1,) * 12, dp=NOISE | {"noise": 0.5}, rounds=9, threshold=0.9)
        for device in federation.devices.values():
            DEFAULTS.model_copy(update={"epsilon": epsilon, "least_share": 0.3}).write(device.store)
        with monkeypatch.context() as patched:
            patched.setattr(Ledger, "agreed", lambda *given: agreed(*given).model_copy(update=plain))
            for round_ in range(3):
                federation.coordinator.pending, federation.coordinator.progress.number = None, round_
                federation.round()
        assert len(opened) == sums
    reached("one sum; more of them only where the owner limits ε")


@attack(
    "lying server",
    "Nobody's upload is in a sum with other users of the same device than before.",
    before="a device that was never asked to reveal took part again without one user; history read exactly",
)
def test_another_user_of_the_same_device(world, monkeypatch, reached):
    """Before: slots 1 and 2 in the first round, 1 and 999 in the second; the difference is user 2."""
    federation = world(sizes=(2,) + (1,) * 12, threshold=0.6, rounds=9, sums_without_noise=9, least_nodes=6)
    monkeypatch.setattr(FederationServer, "fixed_cohort", [])
    for device in federation.devices.values():
        DEFAULTS.model_copy(update={"sums_without_noise": 9, "least_share": 0.2}).write(device.store)
    opened, exchange = keep_opened(monkeypatch), federation.exchange

    def sparing(kind, packets, take):
        exchange(kind, {n: p for n, p in packets.items() if (n, kind) != (100, "unmask")}, take)

    federation.exchange = sparing
    for round_ in range(2):
        federation.coordinator.pending, federation.coordinator.progress.number = None, round_
        federation.round()
        numbers = federation.coordinator.progress.ledger.nodes[100].numbers
        numbers[999] = numbers.pop(2, 0)
    answers = [answer.fields for node, _, _, answer in federation.sent if node == 100]
    said = [fields["declined"] for fields in answers if "declined" in fields]
    assert len(opened) >= 1  # the control: the first sum is opened without its help
    assert said and "this is another one" in said[-1]
    reached("declined by the device, though it had revealed nothing")


@attack(
    "lying server",
    "An invitation is not accepted beside terms that protect less, and nothing else is agreed to with it.",
    before="a device that had joined a plain federation by hand read of 50 devices, and answered in plain",
)
def test_an_invitation_on_top_of_a_plain_federation(world, five_keys, reached):
    """Before: `train -> trained [1]` after an invitation that promised masks."""
    federation = world(masked=False, sizes=(1, 1, 1))
    federation.round()
    device = federation.devices[100]
    made = invitation(five_keys, "new", "127.0.0.1:9", "films", Agreement(masked=True, least_nodes=50))
    with pytest.raises(DeployError, match="on other terms") as refused:
        taking_part.agree(device, made.link())
    assert "solera device leave" in refused.value.hint
    Ledger(device.store).leave(federation.coordinator.identity.federation)
    taking_part.agree(device, made.link())
    assert not Policy.read(device.store).allow_plain
    with pytest.raises(ConfigError, match="agree to more than the invitation"):
        run("node", "start", device.path, "--join")
    reached("refused until the other federation is left; plain rounds are declined from then on")


def test_a_schedule_of_masked_sums_needs_noise(tmp_path):
    plan = '[schedule]\nevery="6h"\nsmallest_cohort=2\n[federation]\nsecure_aggregation=true\n'
    (tmp_path / "serve.toml").write_text(f'bundle="b"\n{plan}')
    with pytest.raises(ConfigError, match="two of them can show what one household has") as refused:
        ServePlan.read(tmp_path / "serve.toml")
    assert "mode=distributed" in refused.value.hint
    dp = 'rounds=30\ndp="epsilon=8,delta=1e-5,clip=1,mode=distributed"\n'
    (tmp_path / "serve.toml").write_text(f'bundle="b"\n{plan}{dp}')
    assert ServePlan.read(tmp_path / "serve.toml").settings().dp is not None


# Keys


@attack(
    "server with nodes of its own",
    "Whoever makes the invitations holds no key of a household, and cannot play its part.",
    before="with the keys it had sent out, the operator played 11 of 12 members and read the twelfth exactly",
)
def test_the_inviter_plays_all_other_members(world, tmp_path, bundle, monkeypatch, reached):
    """Before: invitations carried secret keys made on the operator's machine."""
    keys = tmp_path / "operator"
    make_keys(keys, 0)
    households = [Device.create(tmp_path / f"home-{n}", bundle) for n in range(3)]
    everything = b""
    for number, device in enumerate(households):
        made = invitation(keys, f"home-{number}", "127.0.0.1:9", "films", Agreement(masked=True))
        everything += made.link().encode() + made.model_dump_json().encode()
        accepted.accept(device, made)
    held = [path.read_bytes() for path in keys.rglob("*") if path.is_file()]
    for device in households:
        secret = accepted.accepted(device.path).key.read_bytes()
        assert all(secret not in each and each not in secret for each in (*held, everything))
        device.close()
    assert not list((keys / "nodes").iterdir())
    opened = keep_opened(monkeypatch)  # the control: with the keys of eleven, the twelfth is read
    federation = world(sizes=(1,) * 12, threshold=0.9)
    contributions: dict[int, Any] = {}
    turn: dict[str, int] = {}

    def spied(*given):
        contributions[turn["node"]] = values_of(*given)
        return contributions[turn["node"]]

    monkeypatch.setattr(on_nodes, "values_of", spied)
    federation.forge = lambda node, kind, packet: turn.update(node=node) or packet
    federation.round()
    alone = {k: v - sum(contributions[n][k] for n in range(101, 112)) for k, v in opened[0].items()}
    assert history_in(alone) == sorted(federation.histories[0])
    reached("no secret key in the folder of keys or in an invitation")


@attack(
    "local program",
    "No secret is on a command line.",
    before="ps showed the invitation's link, and with it the household's secret key",
)
def test_a_link_on_a_command_line(five_keys, device, reached):
    """Before: `solera device join DIR LINK` was the documented way."""
    made = invitation(five_keys, "new", "127.0.0.1:9", "films", Agreement())
    with pytest.raises(DeployError, match="can be read by other users"):
        run("device", "join", device.path, made.link(), "--yes")
    assert accepted.accepted(device.path) is None
    run("device", "join", device.path, answers=f"{made.link()}\ny\n")
    assert accepted.accepted(device.path) is not None
    reached("refused; the link is asked for instead")


# Evaluations


def question(federation: Local, node: int, half: list[int], epsilon: float = 2.0) -> dict:
    """Whether the node's newest item is in one half of the catalogue."""
    coordinator = federation.coordinator
    entry = coordinator.progress.ledger.nodes[node]
    asked = Evaluation(
        federation=coordinator.identity.federation,
        version=entry.version,
        slots=list(entry.numbers),
        top=1,
        epsilon=epsilon,
    )
    state = coordinator.state.arrays_for(None, list(entry.numbers.values()), ITEMS)
    (name,) = state
    scores = np.zeros_like(state[name])
    scores[:, half] = 1.0
    return (
        open_node(federation.devices[node], 1)
        .answer("evaluate", Packet(asked.model_dump(), {name: scores}))
        .fields
    )


@attack(
    "lying server",
    "All answers to evaluations together have an ε that the owner knows, for the life of the device.",
    before="the newest item of 5 of 6 users was read with 7 to 18 questions of ε = 2, 8 a day for ever",
)
def test_a_search_by_evaluations(world, reached):
    """Before: a search with states of the server's choice. The next day, it could go on."""
    found, draw = {}, np.random.default_rng(0)
    for limit in (4.0, 1e9):
        federation = world("fedease", masked=False, sizes=(1,) * 6, hold_back=True, evaluation_epsilon=limit)
        for device in federation.devices.values():
            Policy(evaluation_epsilon=limit).write(device.store)
        federation.round()
        right = asked = 0
        for node in range(100, 106):
            belief, answers = np.zeros(ITEMS), 0
            for _ in range(40):
                half = draw.choice(ITEMS, ITEMS // 2, replace=False)
                fields = question(federation, node, half.tolist())
                if "declined" in fields:
                    break
                answers += 1
                inside = np.isin(np.arange(ITEMS), half)
                belief += np.where(inside == (fields["yes"] == 1), 2.0, 0.0)
            right += int(np.argmax(belief)) == federation.histories[node - 100][-1]
            asked = max(asked, answers)
        found[limit] = (right, asked)
    assert found[1e9][0] >= 5  # the control: without a limit, the search succeeds
    assert found[4.0][1] == 2
    assert found[4.0][0] <= 3  # two answers are less than a bit
    (spent,) = federation.devices[100].status()["federations"]
    assert spent["evaluation_epsilon"] == 80.0
    reached(f"two answers of ε = 2, for ever; {found[4.0][0]} of 6 items guessed")


@attack(
    "lying server",
    "Evaluations are no way around differential privacy.",
    before="a plan with ε = 8 asked for 1,460 evaluations of ε = 2 a year, which its statement did not name",
)
def test_evaluations_under_differential_privacy(world, tmp_path, reached):
    """Before: eight evaluations a day were answered in a federation with --dp."""
    plan = 'bundle="b"\n[schedule]\nevery="6h"\n[gate]\nevaluate=true\n[federation]\nrounds=365\n'
    (tmp_path / "serve.toml").write_text(f'{plan}dp="epsilon=8,delta=1e-5,clip=1"\n')
    with pytest.raises(ConfigError, match="does not cover answers to evaluations"):
        ServePlan.read(tmp_path / "serve.toml")
    federation = world(
        "fedease", masked=False, sizes=(1, 1, 1), dp=NOISE | {"mode": "central"}, hold_back=True
    )
    federation.round()
    assert "this device allows 0" in question(federation, 100, [0])["declined"]
    reached("refused by the server's plan and by the device")


# Refusals


@attack(
    "lying server",
    "A refusal names no place on the device, also where the device cannot be opened.",
    before="the path of a missing bundle was told, and stood in no outbox",
)
def test_a_refusal_before_the_device_is_open(world, reached):
    """Before: `declined: '/home/.../node100/0e72...bundle cannot be read'`."""
    federation = world(masked=False, sizes=(1, 1, 1))
    federation.round()
    path = federation.devices[100].path
    order = Packet({"protocol": PROTOCOL, "federation": "a" * 32})
    (installed,) = path.glob("*.bundle")
    installed.rename(path / "gone")
    said = [answer("enrol", order, path).fields["declined"]]
    (path / "gone").rename(installed)
    with sqlite3.connect(path / "device.db") as database:
        database.execute("INSERT OR REPLACE INTO settings VALUES ('membership', '{bad')")
    database.close()
    said.append(answer("enrol", order, path).fields["declined"])
    assert set(said) == {"this node could not answer, nor record that it did not"}
    reached("one fixed sentence")


def test_the_longest_life_of_a_device_costs_what_its_owner_agreed_to(world, five_keys):
    """ε over all rounds, with attempts that were broken off: the device stops, whatever the server says."""
    federation = world(sizes=(1,) * 5, dp=NOISE, rounds=3, keys=five_keys)
    federation.exchange(
        "enrol", federation.coordinator.invite(set(federation.devices)), federation.coordinator.enrol
    )
    agreed = Ledger(federation.devices[100].store).agreed(federation.coordinator.identity.federation)
    federation.tamper = lambda node, kind, packet: None if kind == "confirm" else packet
    for attempt in range(9):
        federation.round(attempt=attempt)
    (spent,) = federation.devices[100].status()["federations"]
    assert spent["uploads"] == 4  # three rounds, and one that may fail
    assert math.isclose(spent["epsilon"], agreed.epsilon or 0)
    assert Membership.read(federation.devices[100].store) is not None
