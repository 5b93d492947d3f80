"""The loop of a served federation, with nodes in this process and a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from one_process import Local
from solera.core.errors import ConfigError
from solera.device.bundle import Bundle, Item
from solera.device.device import Device
from solera.device.ledger import Ledger
from solera.device.policy import Policy
from solera.device.publish import extend
from solera.federation.common.json_log import in_round, round_id
from solera.federation.node import evaluation as node_evaluation
from solera.federation.server.plan import EXAMPLE, ServePlan
from solera.federation.server.serve import ServeLoop
from solera.federation.server.versions import Versions, is_canary

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)


class World:
    """A served federation of three nodes; `here` are the nodes that are online."""

    def __init__(self, local: Local, plan: dict) -> None:
        self.local, self.now = local, NOON
        self.path = local.server.path
        self.here = set(local.devices)
        plan = {"bundle": str(local.bundle.path), **plan}
        self.plan = ServePlan.model_validate(plan)
        self.plan.check()
        self.during: Callable[[], None] = lambda: None  # called before every round
        self.restart()

    def restart(self) -> None:
        """As after a kill: nothing but the folder is left."""
        self.loop = ServeLoop(self.path, self.plan, self, lambda: self.now)

    def online(self) -> set[int]:
        return set(self.here)

    def rounds_of(self, coordinator):
        self.local.coordinator = coordinator
        return self

    def rounds(self, until, may_start):
        coordinator = self.local.coordinator
        while coordinator.progress.rounds_done < until and may_start():
            self.during()
            with in_round(round_id(coordinator.identity.federation, coordinator.progress.number, 0)):
                assert self.local.round(self.here) is not None

    def exchange(self, kind, packets, take):
        self.local.exchange(kind, packets, take)

    def step(self, **later: float) -> str:
        self.now += timedelta(**later)
        self.loop.step()
        return self.loop.serving.state

    @property
    def versions(self) -> Versions:
        return Versions(self.path)

    def outcomes(self) -> list[str]:
        return [version.outcome for version in self.versions.all()]

    def events(self, kind: str) -> list[dict]:
        return [line for line in self.local.server.lines("events.jsonl") if line["event"] == kind]

    @property
    def done(self) -> int:
        return len(self.local.server.lines("history.jsonl"))


@pytest.fixture
def world(local, monkeypatch):
    """FedMF, served; devices answer evaluations truthfully unless the test says otherwise."""

    def make(schedule=None, gate=None, method="fedmf", options=None, **rest) -> World:
        made = local(method, options or ({"embedding_size": 4} if method == "fedmf" else {}))
        plan = {"schedule": {"every": "6h", "smallest_cohort": 2} | (schedule or {}), "gate": gate or {}}
        return World(made, plan | rest)

    return make


ALL_PASS = {"evaluate": True, "least_users": 5, "largest_drop": 0.99}


def test_a_run_is_due_at_once_and_then_every_six_hours(world):
    made = world({"rounds": 2})
    assert made.step() == "training"
    assert made.done == 2
    assert made.step(minutes=1) == "evaluating"  # there is nothing to evaluate, so it is published
    assert made.outcomes() == ["published"]
    assert made.step(hours=5, minutes=58) == "waiting"
    assert made.done == 2
    assert made.step(minutes=1) == "training"
    assert made.done == 4


def test_a_published_version_reaches_every_node_once(world):
    made = world()
    made.step()
    made.step(minutes=1)
    assert made.loop.serving.told == {100: 1, 101: 1, 102: 1}
    sent = len(made.local.sent)
    made.step(minutes=1)
    assert len(made.local.sent) == sent
    shared = made.versions.load(1).shared
    for device in made.local.devices.values():
        for name, values in device.shared("u0").items():
            assert np.array_equal(values, shared[name].numpy())


def test_a_node_that_was_away_gets_the_version_later_and_a_new_one_is_enrolled(world):
    made = world()
    made.here = {100, 101}
    made.step()
    made.step(minutes=1)
    assert made.loop.serving.told == {100: 1, 101: 1}
    made.local.add_node(103, {"new": ["1", "2", "3"]})
    made.here = {100, 101, 102, 103}
    made.step(minutes=1)
    assert made.loop.serving.told == {100: 1, 101: 1, 102: 1, 103: 1}
    assert made.local.devices[103].shared("new")
    made.step(hours=6)
    assert made.local.server.lines("history.jsonl")[-1]["nodes"] == 4


def test_too_few_nodes_are_waited_for_and_then_the_run_is_skipped(world):
    made = world({"wait": "1h"})
    made.here = {100}
    assert made.step() == "too few nodes"
    assert made.step(minutes=59) == "too few nodes"
    assert made.events("skipped") == []
    made.step(minutes=1)
    assert [(line["online"], line["needed"]) for line in made.events("skipped")] == [(1, 2)]
    made.here = {100, 101}
    assert made.step(minutes=1) == "waiting"  # the next run is due six hours after the skipped one
    assert made.step(hours=6) == "training"


def test_nothing_starts_in_quiet_hours_and_a_run_that_meets_them_goes_on_afterwards(world):
    made = world({"quiet": ["13:00-15:00"], "rounds": 3})
    clock = iter([40, 40, 40])  # minutes per round: the third would begin at 13:20

    def pass_time() -> None:
        made.now += timedelta(minutes=next(clock))

    made.during = pass_time
    made.step()
    assert made.done == 2
    assert made.step(minutes=10) == "quiet"
    made.restart()
    assert made.step(minutes=60) == "quiet"
    made.now = NOON + timedelta(hours=3)
    assert made.step() == "training"
    assert made.done == 3
    assert [line["round"] for line in made.local.server.lines("history.jsonl")] == [1, 2, 3]


def test_a_crash_between_rounds_repeats_none_and_skips_none(world):
    made = world({"rounds": 3})

    def crash() -> None:
        if made.done == 1:
            raise KeyboardInterrupt

    made.during = crash
    with pytest.raises(KeyboardInterrupt):
        made.step()
    made.during = lambda: None
    made.restart()
    made.step(minutes=1)
    assert [line["round"] for line in made.local.server.lines("history.jsonl")] == [1, 2, 3]
    assert made.outcomes() == ["candidate"]
    made.restart()  # before the verdict
    made.step(minutes=1)
    assert made.outcomes() == ["published"]


def test_missed_runs_are_made_up_for_once(world):
    made = world()
    made.step()
    made.step(minutes=1)
    made.restart()
    made.step(days=3)
    assert made.done == 2
    made.step(minutes=1)
    made.step(minutes=1)
    assert made.done == 2


def test_a_run_that_fails_is_told_and_tried_at_the_next_time(world):
    made = world()
    made.local.tamper = lambda node, kind, packet: None if kind == "train" else packet
    made.during = lambda: None

    def fails(until, may_start):
        from solera.core.errors import RunError

        raise RunError("round 1 failed 3 times because of too few replies", "see events.jsonl")

    made.rounds = fails
    made.step()
    assert made.loop.serving.failures == 1
    assert made.events("failed")[0]["message"].startswith("round 1 failed")
    assert made.step(minutes=5) == "waiting"
    del made.rounds
    made.local.tamper = lambda node, kind, packet: packet
    made.step(hours=6)
    assert (made.done, made.loop.serving.failures) == (1, 0)


def test_what_fails_outside_a_run_is_tried_again_after_a_minute(world):
    made = world()
    made.step()
    standing = made.path / "versions" / "1" / "shared.safetensors"
    content = standing.read_bytes()
    standing.write_bytes(b"")
    for _ in range(5):
        made.step(seconds=3)
    assert len(made.events("failed")) == 1
    standing.write_bytes(content)
    made.step(seconds=60)
    assert made.loop.serving.told == {100: 1, 101: 1, 102: 1}


def verdicts(monkeypatch, hits: dict[int, bool] | bool) -> None:
    """Let devices find all items or none, and flip nothing."""
    monkeypatch.setattr(node_evaluation, "is_hit", lambda model, history, top: hits)
    monkeypatch.setattr(node_evaluation.Evaluating.__init__, "__defaults__", (lambda probability: False,))


def test_a_version_that_is_worse_is_rejected_and_training_goes_back(world, monkeypatch):
    made = world(gate={"evaluate": True, "least_users": 11, "largest_drop": 0.05})
    verdicts(monkeypatch, True)
    made.step()
    made.step(minutes=1)
    first = made.versions.get(1)
    assert (first.outcome, first.tally.users, first.tally.yes) == ("published", 11, 11)
    verdicts(monkeypatch, False)
    made.step(hours=6)
    made.step(minutes=1)
    assert made.outcomes() == ["published", "rejected"]
    progress, state = made.local.server.load()
    assert progress.rounds_done == 2  # the round stays counted
    assert np.array_equal(state.shared["items"], made.versions.load(1).shared["items"])
    assert made.loop.serving.told == {100: 1, 101: 1, 102: 1}
    assert made.loop.serving.evaluations == 2
    assert made.loop.serving.evaluation_epsilon == 1.0


def share_with_some(version: int) -> float:
    """A share with which exactly one of the three nodes is a canary."""
    for percent in range(5, 95, 5):
        if sum(is_canary(node, version, percent / 100) for node in (100, 101, 102)) == 1:
            return percent / 100
    raise AssertionError


@pytest.mark.parametrize("is_good", [True, False])
def test_a_canary_is_promoted_or_rolled_back(world, monkeypatch, is_good):
    share = share_with_some(2)
    (early,) = (node for node in (100, 101, 102) if is_canary(node, 2, share))
    gate = {"evaluate": True, "least_users": 1, "largest_drop": 0.05, "canary_share": share}
    made = world(gate=gate | {"canary_time": "2h"})
    verdicts(monkeypatch, True)
    made.step()
    made.step(minutes=1)
    made.step(hours=6)
    made.step(minutes=1)
    assert made.outcomes() == ["published", "canary"]
    assert made.loop.serving.told == {100: 1, 101: 1, 102: 1, early: 2}
    assert made.step(hours=1) == "canary"
    verdicts(monkeypatch, is_good)
    made.step(hours=1)
    if is_good:
        assert made.outcomes() == ["published", "published"]
        assert made.loop.serving.told == dict.fromkeys((100, 101, 102), 2)
    else:
        assert made.outcomes() == ["published", "rolled back"]
        assert made.loop.serving.told == dict.fromkeys((100, 101, 102), 1)
        assert made.events("version")[-1]["outcome"] == "rolled back"
    assert made.versions.standing.canary is None


def test_no_run_starts_while_a_canary_is_watched(world, monkeypatch):
    share = share_with_some(2)
    gate = {"evaluate": True, "least_users": 1, "canary_share": share, "canary_time": "9h"}
    made = world(gate=gate)
    verdicts(monkeypatch, True)
    made.step()
    made.step(minutes=1)
    made.step(hours=6)
    made.step(minutes=1)
    assert made.step(hours=7) == "canary"
    assert made.done == 2
    made.step(hours=2)
    made.step(minutes=1)
    assert made.done == 3


def test_the_held_back_item_is_not_trained_on_and_the_state_in_training_not_used(world):
    made = world(gate=ALL_PASS)
    histories = made.local.histories
    made.step()
    for node, kind, order, answer in made.local.sent:
        if kind != "train":
            continue
        assert order.fields["hold_back"] is True
        slots = dict(zip(order.fields["slots"], order.fields["numbers"], strict=True))
        assert slots
        device = made.local.devices[node]
        assert device.shared("u0") == {}  # until a version is published
        assert sum(answer.arrays["weight"]) > 0
    with_all = {len(each) for each in histories}
    assert with_all
    made.step(minutes=1)
    assert all(device.shared("u0") for device in made.local.devices.values())


def test_new_items_are_taken_in_by_the_next_run(world, tmp_path):
    made = world()
    made.step()
    made.step(minutes=1)
    more = extend(made.local.bundle, [Item("new", "New film", 2026)], tmp_path / "2.bundle", made.local.key)
    assert more.manifest.catalogue_version == 2
    made.plan = made.plan.model_copy(update={"bundle": more.path})
    made.restart()
    made.step(hours=6)
    assert [line["version"] for line in made.events("catalogue")] == [2]
    made.step(minutes=1)
    assert made.versions.get(2).catalogue == 2
    assert len(made.versions.load(2).shared["items"]) == 25
    assert made.loop.serving.told == {100: 2, 101: 2, 102: 2}  # with their own catalogue's rows


def test_a_bundle_of_the_published_version_serves_a_new_device(world, tmp_path):
    made = world(method="fedease", versions={"publisher_key": None})
    made.plan = made.plan.model_copy(
        update={"versions": made.plan.versions.model_copy(update={"publisher_key": made.local.key})}
    )
    made.restart()
    made.step()
    made.step(minutes=1)
    assert made.events("failed") == []
    bundle = Bundle.open(made.path / "published.bundle")
    assert bundle.manifest.trained["round"] == 1
    device = Device.create(tmp_path / "new", bundle)
    device.add_all([("1", 0), ("2", 1)], "me", "test")
    assert len(device.recommend(3)) == 3
    device.close()
    made.step(hours=6)  # a method of one round is solved anew, from all histories
    assert made.done == 2


def test_with_dp_the_loop_ends_with_the_budget(local):
    pytest.importorskip("dp_accounting")
    from solera.dp.settings import DP

    made = local("fedmf", {"embedding_size": 4}, rounds=2, dp=DP.parse("noise=2,delta=1e-5,clip=1"))
    plan = {"schedule": {"every": "1h", "smallest_cohort": 2, "rounds": 1}}
    served = World(made, plan | {"federation": {"dp": "noise=2,delta=1e-5,clip=1", "rounds": 2}})
    for _ in range(8):
        served.step(minutes=30)
    assert served.done == 2
    assert served.loop.serving.state == "spent"
    served.restart()
    assert served.step(hours=5) == "spent"
    assert served.done == 2


def test_retention(world):
    made = world({"every": "1h"}, versions={"keep": 2})
    for _ in range(10):
        made.step(minutes=30)
    assert made.done >= 4
    assert [version.number for version in made.versions.all()] == [made.done - 1, made.done]


def answer_of(local: Local, node: int, top: int = 10, epsilon: float = 1.0):
    from solera.federation.common.protocol import Evaluation, Packet

    entry = local.coordinator.progress.ledger.nodes[node]
    asked = Evaluation(
        federation=local.coordinator.identity.federation,
        version=1,
        slots=list(entry.numbers),
        top=top,
        epsilon=epsilon,
    )
    arrays = local.coordinator.state.arrays_for(None, list(entry.numbers.values()), 24)
    return local.ask(node, "evaluate", Packet(asked.model_dump(), arrays))


def test_a_device_answers_by_randomized_response_within_its_owner_s_policy(local, monkeypatch):
    made = local("fedmf", {"embedding_size": 4}, evaluation_epsilon=9)
    made.run(1)
    monkeypatch.setattr(node_evaluation.Evaluating.__init__, "__defaults__", (lambda probability: False,))
    assert answer_of(made, 100, top=24).fields["yes"] == 5  # every item is among the first 24
    monkeypatch.setattr(node_evaluation.Evaluating.__init__, "__defaults__", (lambda probability: True,))
    assert answer_of(made, 100, top=24).fields["yes"] == 0  # all flipped
    assert made.devices[100].outbox()[-1]["steps"] == ["randomized response 1"]
    for _ in range(2):
        assert "yes" in answer_of(made, 100).fields
    assert "ε = 5 in all; this device allows 4" in answer_of(made, 100).fields["declined"]
    (spent,) = made.devices[100].status()["federations"]
    assert spent["evaluation_epsilon"] == 4.0
    Policy(epsilon=4).write(made.devices[101].store)
    assert "limits ε" in answer_of(made, 101).fields["declined"]
    Ledger(made.devices[102].store).leave(made.coordinator.identity.federation)
    assert "declined" in answer_of(made, 102).fields


def test_flips_come_as_often_as_the_epsilon_says():
    """ε = ln 3 flips one in four: 2,000 coins give 500 ± 19.4."""
    flips = sum(node_evaluation.flip(0.25) for _ in range(2000))
    assert 400 < flips < 600


def test_the_example_is_valid_and_mistakes_are_told(tmp_path):
    path = tmp_path / "serve.toml"
    path.write_text(EXAMPLE)
    plan = ServePlan.read(path)
    assert plan.bundle == tmp_path / "films.bundle"
    assert plan.given()["hold_back"] is True
    for wrong, says in (
        ("[schedule]\nevery = '6h'\n", "bundle: field required"),
        ("bundle = 'b'\n[schedule]\nevery = '6h'\nround = 2\n", "schedule.round: extra inputs"),
        ("bundle = 'b'\n[schedule]\nevery = '6'\n", "is not a duration"),
        ("bundle = 'b'\n[schedule]\nevery='6h'\n[gate]\ncanary_share=0.1\n", "canary_share needs"),
        ("bundle = 'b'\n[schedule]\nevery='6h'\n[federation]\nmin_nodes=2\n", "min_nodes follows"),
        ("bundle = 'b'\n[schedule]\nevery='6h'\n[federation]\ndeadline=-2\n", "federation.deadline"),
        (
            "bundle = 'b'\n[schedule]\nevery='6h'\n[federation]\ndp='epsilon=8,delta=1e-5'\n",
            "federation.rounds",
        ),
        ("bundle = ", "is not TOML"),
    ):
        path.write_text(wrong)
        with pytest.raises(ConfigError, match=says):
            ServePlan.read(path)
