"""Federations whose uploads are masked: the same outcome as plain ones, whoever drops out at which stage."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from one_process import FIVE, ITEMS
from solera.core.closed_form import WEIGHTS
from solera.core.errors import ConfigError, RunError
from solera.core.fixed_point import FixedPoint
from solera.device.device import Device
from solera.federation.common.protocol import Packet, Reason
from solera.federation.common.settings import Settings, check_roster
from solera.federation.node.membership import Membership
from solera.federation.server.folder import FederationFolder
from solera.federation.server.masked_round import STAGES, run_masked

SMALL = {"embedding_size": 4}
LEFT = {"advertise": 4, "share": 4, "mask": 4, "confirm": 5, "unmask": 5}  # of five nodes, one of them out


def drops(node: int, stage: str, round_: int = 0):
    """A node whose answer to one stage of a round is lost."""

    def tamper(who: int, kind: str, packet: Packet) -> Packet | None:
        return None if (who, kind) == (node, stage) and packet.fields["round"] == round_ else packet

    return tamper


@pytest.mark.parametrize(
    "method", ["fedmf", "pfedclr", "fedrap", "fedncf", "plgc", "fedmf+row-mean", "local"]
)
def test_the_outcome_is_the_plain_one(masked, method):
    federation = masked(method, SMALL | ({"clients_per_round": 1.0} if method != "local" else {}))
    federation.run()
    differences = federation.differences(federation.simulated())
    assert max(differences.values()) < 1e-9, differences
    assert federation.server.lines("history.jsonl")[0]["masked"] == {
        "members": 5,
        "threshold": 3,
        "survivors": 5,
    }


def test_the_first_round_differs_by_rounding_alone(masked):
    """Each of five nodes rounds its sum once, to half a unit; the mean is over 11 users."""
    federation = masked("fedmf", SMALL)
    federation.round()
    fixed = FixedPoint.of(federation.coordinator.method, ITEMS, places=5, users=4)
    assert (fixed.bits, fixed.fraction_bits) == (64, 36)  # 5 · 2^36 · 4096 · 4 ≤ 2^53 < 5 · 2^37 · 4096 · 4
    difference = federation.coordinator.state.shared["items"] - federation.simulated(1).state.shared["items"]
    assert 0 < float(difference.abs().max()) <= 5 / 2 * 2.0**-36 / 11 + 1e-15


@pytest.mark.parametrize(
    ("method", "options", "precision"),
    [("fedease", {}, 1e-12), ("fedease", {"sketch": 6}, 1e-12), ("fedslist", {}, 1e-5)],
)
def test_methods_of_one_round(masked, local, method, options, precision):
    """FedEASE sums whole numbers, sketched or not: nothing is rounded."""
    federation, plain = masked(method, options), local(method, options, sizes=FIVE)
    for each in (federation, plain):
        each.round()
    weights = plain.coordinator.state.shared[WEIGHTS]
    assert torch.allclose(federation.coordinator.state.shared[WEIGHTS], weights, atol=precision)


OTHERS = [pytest.param(node, marks=pytest.mark.slow) for node in (100, 104)]


@pytest.mark.parametrize("node", [102, *OTHERS])
@pytest.mark.parametrize("stage", STAGES)
def test_a_node_drops_out(masked, local, stage, node):
    """Before its upload has come, it is as if it had been away; after that, it is in the sum.

    Without noise, all later sums are over the cohort of the first one.
    """
    federation, plain = masked("fedmf", SMALL), local("fedmf", SMALL, sizes=FIVE, over_selection=1.0)
    federation.tamper = drops(node, stage)
    away = set(plain.devices) - {node} if LEFT[stage] == 4 else None
    plain.exchange("enrol", plain.coordinator.invite(set(plain.devices)), plain.coordinator.enrol)
    for _ in range(3):
        assert federation.round() is not None
        plain.round(away)
    for each in (federation, plain):
        each.finish()
    entry = federation.server.lines("history.jsonl")[0]
    assert (entry["masked"]["survivors"], entry["nodes"]) == (LEFT[stage], LEFT[stage])
    assert entry["rejected"] == {"no-reply": 1}
    assert torch.allclose(
        federation.coordinator.state.shared["items"], plain.coordinator.state.shared["items"], atol=1e-9
    )
    for number, (who, user) in plain.user_of().items():
        mine, theirs = (each.devices[who].personal(user) for each in (federation, plain))
        assert mine.keys() == theirs.keys() and (mine or who == node), number
        assert all(np.allclose(mine[name], theirs[name], atol=1e-9) for name in mine), user


def test_without_noise_a_cohort_is_waited_for(masked):
    """One node of five is away: nothing is opened without it, and the round goes on when it is back."""
    federation = masked("fedmf", SMALL)
    federation.round()
    opened = federation.server.opened_rounds()
    assert federation.round(online=set(federation.devices) - {102}) is None
    federation.tamper = drops(102, "mask", round_=1)
    assert federation.round(attempt=1) is None
    assert federation.server.opened_rounds() == opened
    federation.tamper = lambda node, kind, packet: packet
    assert federation.round(attempt=2)["masked"]["survivors"] == 5


@pytest.mark.parametrize("stage", STAGES)
def test_below_the_threshold_the_round_is_void_and_the_next_attempt_works(masked, stage):
    federation = masked("fedmf", SMALL)
    federation.round()
    before = federation.coordinator.state.shared["items"].clone()
    federation.tamper = lambda node, kind, p: None if node >= 102 and kind == stage else p
    assert federation.round(attempt=0) is None
    kinds = [kind for _, kind, _, _ in federation.sent]
    assert all(kinds.count(later) == 5 for later in STAGES[STAGES.index(stage) + 1 :])  # of round 1 alone
    assert torch.equal(federation.coordinator.state.shared["items"], before)
    federation.tamper = lambda node, kind, p: p
    assert federation.round(attempt=1) is not None
    assert federation.round() is not None
    federation.finish()
    # Uploads that may have been seen are not sent twice: users draw anew, by a secret seed. Before any
    # upload, and while a sum is being opened, the round is the same as if nothing had happened.
    drawn_anew = stage in ("mask", "confirm")
    assert (max(federation.differences(federation.simulated()).values()) > 1e-3) == drawn_anew
    assert (max(federation.differences(federation.simulated()).values()) < 1e-9) != drawn_anew


def test_too_few_users_are_noticed_before_the_masks_come_off(masked):
    federation = masked("fedmf", SMALL, min_replies=0.8)
    federation.tamper = lambda node, kind, p: None if node in {100, 101} and kind == "mask" else p
    assert federation.round() is None
    assert {kind for _, kind, _, _ in federation.sent} == {"enrol", "advertise", "share", "mask"}
    assert "6 users have answered, 9 are needed" in federation.server.lines("events.jsonl")[-2]["message"]


def test_nodes_are_killed_and_started_again_between_all_stages(masked):
    federation = masked("fedmf", SMALL)

    def restart(node: int, kind: str, packet: Packet) -> Packet:
        path = federation.devices[node].path
        federation.devices[node].close()
        federation.devices[node] = Device.open(path)
        return packet

    federation.forge = restart
    federation.run()
    assert max(federation.differences(federation.simulated()).values()) < 1e-9


def test_a_server_killed_in_mid_round_goes_on(masked):
    federation = masked("fedmf", SMALL)
    federation.round()

    def killed(kind, packets, take):
        federation.exchange(kind, packets, take)
        if kind == "confirm":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_masked(federation.coordinator, 0, set(federation.devices), killed)
    federation.restart_server()
    assert federation.coordinator.pending is None
    federation.round()
    federation.round()
    federation.finish()
    assert [line["round"] for line in federation.server.lines("history.jsonl")] == [1, 2, 3]
    assert max(federation.differences(federation.simulated()).values()) > 1e-3  # users have drawn anew


@pytest.mark.parametrize("moment", ["before", "after", "saving"])
def test_a_server_killed_while_it_opens_a_sum_ends_that_round(masked, monkeypatch, moment):
    """Before anybody has revealed, after all have, or when the outcome is saved: one sum, the same one."""
    federation = masked("fedmf", SMALL)
    federation.round()

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    def exchange(kind, packets, take):
        if kind == "unmask" and moment == "before":
            raise KeyboardInterrupt
        federation.exchange(kind, packets, take)
        if kind == "unmask" and moment == "after":
            raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        if moment == "saving":
            patched.setattr(FederationFolder, "save", killed)
        run_masked(federation.coordinator, 0, set(federation.devices), exchange)
    federation.restart_server()
    assert federation.coordinator.pending is not None
    assert federation.round() is not None
    assert federation.round() is not None
    federation.finish()
    assert not (federation.server.path / "opening").exists()
    assert sorted(federation.server.opened_rounds()) == [0, 1, 2]
    assert max(federation.differences(federation.simulated()).values()) < 1e-9


def test_a_sum_that_cannot_be_opened_any_more_is_given_up(masked):
    """The nodes have revealed, the server has lost it: that number is never used again."""
    federation = masked("fedmf", SMALL)

    def killed(kind, packets, take):
        federation.exchange(kind, packets, take)
        if kind == "unmask":
            raise KeyboardInterrupt

    federation.exchange(
        "enrol", federation.coordinator.invite(set(federation.devices)), federation.coordinator.enrol
    )
    with pytest.raises(KeyboardInterrupt):
        run_masked(federation.coordinator, 0, set(federation.devices), killed)
    federation.restart_server()
    federation.coordinator.give_up_opening()
    assert federation.coordinator.progress.number == 1
    entry = federation.round()
    assert (entry["round"], federation.coordinator.progress.rounds_done) == (2, 1)
    federation.restart_server()
    assert federation.coordinator.progress.number == 2


@pytest.mark.parametrize("method", ["fedem", "gpfedrec", "pfedgraph", "fedfast", "perfedrec"])
def test_methods_that_need_single_uploads_are_refused(masked, method):
    with pytest.raises(ConfigError, match="single clients' uploads"):
        masked(method, SMALL)


def test_nodes_without_a_roster_are_left_out(masked):
    federation = masked("fedmf", SMALL, threshold=1.0)
    for node in (101, 103):
        Membership.forget(federation.devices[node].store)
    entry = federation.round()
    assert (entry["nodes"], entry["clients"]) == (3, 7)
    assert federation.rejected() == [Reason.DECLINED] * 2
    for device in federation.devices.values():
        Membership.forget(device.store)
    federation.restart_server()
    federation.coordinator.progress.ledger.nodes.clear()
    with pytest.raises(RunError, match="masked rounds"):
        federation.round()


def test_a_roster_that_is_too_small_is_refused_at_once():
    check_roster(10, Settings())
    check_roster(3, Settings(least_nodes=3))
    with pytest.raises(ConfigError, match="has 9 nodes, but a masked sum needs at least 10"):
        check_roster(9, Settings())
    with pytest.raises(ConfigError, match="each of 5 groups needs at least 10"):
        check_roster(49, Settings(groups=5, least_share=0.1))
    with pytest.raises(ConfigError, match="50% of the roster, but there are 5 groups"):
        check_roster(50, Settings(groups=5))
