"""Devices and a server that does whatever it likes, step by step, in any order.

    SOLERA_STEPS=100000 pytest -s tests/adversary/test_every_step.py

Owners change policies, accept invitations, join, pause and leave. The server offers, proposes rounds over
any members and groups, with or without noise, asks for plain uploads and evaluations, and goes back to
earlier round numbers. Devices are restarted. Decisions are those of the real node, policy, approval and
ledger. Keys and masks are left out after `advertise`, so that there is time for many steps. What must hold
is written down here once more, by itself.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from attack import attack
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from one_process import Local
from solera.core.errors import ConfigError
from solera.device.device import Device
from solera.device.ledger import JOINED, Ledger, Stage
from solera.device.policy import LEAST_NOISE, Agreement, Policy
from solera.dp.accounting import concentrated_epsilon
from solera.federation.common.authority import make_keys
from solera.federation.common.protocol import PROTOCOL, Evaluation, Order, Packet, RefusalError
from solera.federation.common.settings import Settings
from solera.federation.node import approval as approving
from solera.federation.node.evaluation import Evaluating
from solera.federation.node.masked_round import Masking, open_node
from solera.federation.node.node import Node
from solera.federation.secure.terms import Member, NodeGroup, RoundTerms, groups_of, model_digest
from solera.federation.server.privacy import check_sums
from solera.methods import find

DEVICES = 6
STEPS = int(os.environ.get("SOLERA_STEPS", "600"))
EACH = 60  # steps from one beginning
FEDERATIONS = ["a" * 32, "b" * 32]
ENOUGH = 50.0  # ε

numbers, federations = st.integers(0, DEVICES - 1), st.sampled_from(FEDERATIONS)
some = st.sets(numbers, min_size=2, max_size=DEVICES)
noises = st.sampled_from([None, 0.1, 0.5, 2.0])
policies = st.builds(
    Policy,
    least_nodes=st.sampled_from([2, 3, 4]),
    least_users=st.sampled_from([1, 3, 5]),
    least_share=st.sampled_from([0.1, 0.5]),
    most_groups=st.sampled_from([1, 2]),
    least_noise=st.sampled_from([None, None, 1.0]),
    largest_clip=st.sampled_from([None, None, 1.0]),
    epsilon=st.sampled_from([None, ENOUGH]),
    sums_without_noise=st.sampled_from([0, 1, 1, 3, 100]),
    evaluation_epsilon=st.sampled_from([0.0, 2.0, 4.0]),
    allow_plain=st.booleans(),
    rounds_per_day=st.just(10**6),
)
agreements = st.builds(
    Agreement,
    masked=st.booleans(),
    least_nodes=st.sampled_from([None, 2, 4]),
    least_users=st.sampled_from([None, 4]),
    groups=st.sampled_from([1, 2]),
    clip=st.sampled_from([None, 1.0]),
    noise=noises,
    sums=st.sampled_from([None, 1, 3]),
    epsilon=st.sampled_from([None, ENOUGH]),
    evaluations=st.sampled_from([None, 1.0, 3.0]),
)


@dataclass(frozen=True)
class OpenedSum:
    """One sum that enough devices have opened."""

    federation: str
    cohort: frozenset[tuple[int, int]]  # devices, and users asked on them
    revealed: frozenset[int]
    least: int
    noise: float | None
    bounded: frozenset[int]  # devices with a limit of ε


@dataclass
class World:
    """Folders of devices to begin from, and what they have in common."""

    folder: Path
    model: str
    version: int


class EveryStep(RuleBasedStateMachine):
    """All devices are honest, and the server is not."""

    world: World
    start: tuple[Policy, Agreement] | None = None
    steps = 0
    opened_in_all = 0

    @initialize(policy=policies, agreement=agreements)
    def begin(self, policy: Policy, agreement: Agreement) -> None:
        """All have one policy, and have joined the first federation under one agreement."""
        policy, agreement = self.start or (policy, agreement)
        self.folder = Path(tempfile.mkdtemp(dir=self.world.folder.parent))
        for number in range(DEVICES):
            shutil.copytree(self.world.folder / f"node{100 + number}", self.folder / f"{number}")
        self.nodes: list[Node] = [self._open(number) for number in range(DEVICES)]
        self.opened: list[OpenedSum] = []
        self.round = 0
        for node in self.nodes:
            policy.write(node.device.store)
            node.ledger.join_next()
            node.answer("enrol", _offer(FEDERATIONS[0], agreement.model_copy(update={"masked": True})))

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            for node in self.nodes:
                node.device.close()
            shutil.rmtree(self.folder)

    def _open(self, number: int) -> Node:
        device = Device.open(self.folder / f"{number}")
        device.store.connection.execute("PRAGMA synchronous = OFF")  # no power is cut here
        return open_node(device, 1)

    def _count(self) -> None:
        type(self).steps += 1

    # Owners

    @rule(number=numbers, policy=policies)
    def set_policy(self, number: int, policy: Policy) -> None:
        self._count()
        policy.write(self.nodes[number].device.store)

    @rule(agreed=st.one_of(agreements, st.just(True)), who=some)
    def agree_beforehand(self, agreed: Agreement | bool, who: set[int]) -> None:
        self._count()
        for number in who:
            self.nodes[number].ledger.join_next(agreed)

    @rule(
        number=numbers,
        federation=federations,
        what=st.sampled_from(["join", "pause", "leave"]),
    )
    def decide(self, number: int, federation: str, what: str) -> None:
        self._count()
        ledger = self.nodes[number].ledger
        if ledger.standing(federation) is not None:
            getattr(ledger, what)(federation)

    @rule(number=numbers)
    def restart(self, number: int) -> None:
        self._count()
        self.nodes[number].device.close()
        self.nodes[number] = self._open(number)

    # The server

    @rule(federation=federations, agreement=agreements, who=some)
    def offer(self, federation: str, agreement: Agreement, who: set[int]) -> None:
        """A device joins what its owner has agreed to, and nothing that protects less."""
        self._count()
        for number in who:
            node = self.nodes[number]
            ledger = node.ledger
            standing, before, said = ledger.standing(federation), ledger.agreed(federation), _said(node)
            answer = node.answer("enrol", _offer(federation, agreement))
            if "declined" in answer.fields:
                continue
            agreed = ledger.agreed(federation)
            assert ledger.standing(federation) == JOINED
            if said == "yes":
                assert agreed == agreement
            elif said:
                assert _protects(agreement, Agreement.model_validate_json(said)) and agreed == agreement
            else:
                assert standing == JOINED and agreed == before and _protects(agreement, before)

    @rule(
        federation=federations,
        members=st.one_of(st.just(set(range(DEVICES))), some),
        group_count=st.sampled_from([1, 1, 1, 2]),
        threshold=st.sampled_from([2, 3, 4, 4, 4, 5]),
        users=st.lists(st.sampled_from([1, 1, 1, 0, 2]), min_size=DEVICES, max_size=DEVICES),
        clip=st.sampled_from([None, 0.5, 0.5, 2.0]),
        noise=noises,
        round_=st.integers(0, 30),
        attempt=st.integers(0, 10**6),
        lost=st.sets(numbers, max_size=1),
        silent=st.sets(numbers, max_size=1),
        fits=st.sampled_from([True, True, True, False]),
    )
    def propose(
        self,
        *,
        federation: str,
        members: set[int],
        group_count: int,
        threshold: int,
        users: list[int],
        clip: float | None,
        noise: float | None,
        round_: int,
        attempt: int,
        lost: set[int],
        silent: set[int],
        fits: bool,
    ) -> None:
        """A round: who accepts its terms, uploads; without the lost ones it is confirmed and revealed."""
        self._count()
        if fits:  # just what the first device still takes, in a round that it has not seen
            federation, group_count, users = FEDERATIONS[0], 1, [1] * DEVICES
            limits = self.nodes[0].limits(federation)
            threshold = max(limits.least_nodes, math.ceil(limits.least_share * DEVICES))
            noise = limits.least_noise or (2.0 if limits.epsilon else noise)
            clip = limits.largest_clip or (clip or 0.5 if noise else clip)
            self.round = round_ = self.round + 1
        keys = {self._masking(number)._membership.public: number for number in range(DEVICES)}
        roster = self._masking(0)._membership.roster
        groups = []
        for part in groups_of(roster, group_count):
            listed = tuple(
                Member(key=key, users=users[keys[key]], task="0" * 64) for key in part if keys[key] in members
            )
            groups.append(NodeGroup(threshold=threshold, members=listed))
        if not all(group.members for group in groups) or (noise and not clip):
            return
        terms = RoundTerms(
            federation=federation,
            round=round_,
            attempt=attempt,
            nonce=os.urandom(16).hex(),
            state="1" * 64,
            model=self.world.model,
            roster=roster.digest,
            capacity=4,
            least_users=1,
            clip=clip,
            noise=noise,
            groups=tuple(groups),
        )
        packet = Packet(terms.model_dump(mode="json"))
        for place, group in enumerate(groups):
            there = [keys[member.key] for member in group.members]
            accepted = []
            for number in there:
                before = _kept(self.nodes[number])
                answer = self.nodes[number].answer("advertise", packet)
                if "declined" in answer.fields:
                    assert _kept(self.nodes[number]) == before  # a refusal changes nothing but the outbox
                else:
                    accepted.append(number)
            survivors = [number for number in accepted if number not in lost]
            if len(survivors) < threshold:
                continue
            self._finish(terms, place, there, survivors, silent)

    @rule(
        threshold=st.sampled_from([2, 3, 4]),
        noise=noises,
        members=st.one_of(st.just(set(range(DEVICES))), some),
        users=st.lists(st.sampled_from([1, 1, 1, 2]), min_size=DEVICES, max_size=DEVICES),
        lost=st.sets(numbers, max_size=1),
    )
    def propose_what_fits(
        self, *, threshold: int, noise: float | None, members: set[int], users: list[int], lost: set[int]
    ) -> None:
        """Rounds that get as far as an opened sum, or nearly."""
        self.propose(
            federation=FEDERATIONS[0],
            members=members,
            group_count=1,
            threshold=threshold,
            users=users,
            clip=0.5,
            noise=noise,
            round_=0,
            attempt=self.steps,
            lost=lost,
            silent=set(),
            fits=True,
        )

    def _finish(
        self, terms: RoundTerms, place: int, there: list[int], survivors: list[int], silent: set[int]
    ) -> None:
        group = terms.groups[place]
        confirmed = []
        for number in survivors:
            masking = self._masking(number)
            approval, ledger = masking._approval(terms), self.nodes[number].ledger
            context = terms.setup(place, self.nodes[number].method, self.nodes[number].n_items).context.hex()
            try:
                approval.check_cohort(approval.cohort(place), [1])
                ledger.advance(context, Stage.UPLOADED, b"", slots=[1])
                cohort = approval.check_survivors(place, [there.index(each) for each in survivors])
                ledger.advance(context, Stage.CONFIRMED, b"", cohort=cohort)
            except RefusalError:
                continue
            confirmed.append((number, context))
        revealed = []
        for number, context in confirmed:
            if len(confirmed) >= group.threshold and number not in silent:
                self._check_revealing(number, terms, place, survivors)
                self.nodes[number].ledger.advance(context, Stage.REVEALED, None)
                revealed.append(number)
        if len(revealed) >= group.threshold:
            asked = frozenset((each, group.members[there.index(each)].users) for each in survivors)
            least = group.threshold
            bounded = frozenset(filter(lambda each: self._limits_epsilon(each, terms.federation), revealed))
            now = OpenedSum(terms.federation, asked, frozenset(revealed), least, terms.noise, bounded)
            self._check_opened(now)
            self.opened.append(now)
            type(self).opened_in_all += 1

    def _limits_epsilon(self, number: int, federation: str) -> bool:
        node = self.nodes[number]
        policy, agreed = Policy.read(node.device.store), node.ledger.agreed(federation)
        return any((policy.epsilon, policy.total_epsilon, agreed.epsilon if agreed.masked else None))

    def _check_revealing(self, number: int, terms: RoundTerms, place: int, survivors: list[int]) -> None:
        """No device helps to open what is below its policy or below what its owner agreed to."""
        node, group = self.nodes[number], terms.groups[place]
        policy, agreed = Policy.read(node.device.store), node.ledger.agreed(terms.federation)
        assert node.ledger.standing(terms.federation) == JOINED
        least = max(
            policy.least_nodes, agreed.least_nodes or 0, math.ceil(policy.least_share * DEVICES - 1e-9)
        )
        assert len(survivors) >= group.threshold >= least
        there = [member.users for member in group.members]
        assert sum(there) >= max(policy.least_users, agreed.least_users or 0)
        assert len(terms.groups) <= min(policy.most_groups, agreed.groups)
        for clip in filter(None, (policy.largest_clip, agreed.clip)):
            assert terms.clip is not None and terms.clip <= clip
        for noise in filter(None, (policy.least_noise, agreed.noise)):
            assert terms.noise is not None and terms.noise >= noise
        costs = [
            row["noise"]
            for row in node.device.store.rows(
                "SELECT noise FROM rounds WHERE federation = ? AND stage >= 3 AND stage < 6", terms.federation
            )
        ]
        for limit in filter(None, (policy.epsilon, agreed.epsilon if agreed.masked else None)):
            assert (
                all(costs) and concentrated_epsilon(sum(c**-2 for c in costs), policy.delta) <= limit + 1e-9
            )
        enough = LEAST_NOISE if self._limits_epsilon(number, terms.federation) else math.inf
        if (terms.noise or 0) < enough:
            mine = [each for each in self.opened if number in each.revealed and (each.noise or 0) < enough]
            limits = [policy.sums_without_noise, *([agreed.sums] if agreed.sums is not None else [])]
            assert len(mine) < min(limits)

    def _check_opened(self, now: OpenedSum) -> None:
        """Without noise, two sums are over one cohort, or differ by a threshold of devices both ways.

        A device without a limit of ε takes part in sums over one cohort alone, whatever their noise.
        """
        for number in now.revealed - now.bounded:
            for earlier in self.opened:
                if earlier.federation == now.federation and number in earlier.revealed:
                    assert earlier.cohort == now.cohort
        if (now.noise or 0) >= LEAST_NOISE:
            return
        for earlier in self.opened:
            if earlier.federation != now.federation or (earlier.noise or 0) >= LEAST_NOISE:
                continue
            if earlier.cohort != now.cohort:
                assert len({n for n, _ in earlier.cohort - now.cohort}) >= earlier.least
                assert len({n for n, _ in now.cohort - earlier.cohort}) >= now.least

    @rule(number=numbers, federation=federations)
    def ask_for_a_plain_upload(self, number: int, federation: str) -> None:
        self._count()
        node = self.nodes[number]
        order = Order(
            federation=federation,
            round=0,
            attempt=0,
            version=self.world.version,
            newest=self.world.version,
            accepted="",
            slots=[1],
            numbers=[0],
        )
        before = _kept(node)
        try:
            node._check_plain(order)
        except RefusalError:
            assert _kept(node) == before
            return
        policy, agreed = Policy.read(node.device.store), node.ledger.agreed(federation)
        assert node.ledger.standing(federation) == JOINED
        assert policy.allow_plain and not agreed.masked
        assert not (
            agreed.clip or agreed.noise or policy.largest_clip or policy.least_noise or policy.epsilon
        )

    @rule(number=numbers, federation=federations, epsilon=st.sampled_from([0.5, 2.0]))
    def ask_for_an_evaluation(self, number: int, federation: str, epsilon: float) -> None:
        self._count()
        node = self.nodes[number]
        asked = Evaluation(
            federation=federation, version=self.world.version, slots=[1], top=1, epsilon=epsilon
        )
        asking = node.kinds["evaluate"].__self__  # type: ignore[attr-defined]
        assert isinstance(asking, Evaluating)
        before = _kept(node)
        try:
            asking._check(asked)
        except RefusalError:
            assert _kept(node) == before
            return
        node.ledger.evaluated(federation, 1, epsilon)
        policy, agreed = Policy.read(node.device.store), node.ledger.agreed(federation)
        spent = sum(row[0] for row in node.device.store.rows("SELECT epsilon FROM evaluations"))
        assert spent <= min(policy.evaluation_epsilon, agreed.evaluations or 0.0) + 1e-9
        assert not agreed.masked and policy.allow_plain

    @rule(method=st.sampled_from(["fedease", "fedmf"]), rounds=st.integers(1, 9), allowed=st.integers(1, 9))
    def plan_masked_rounds(self, method: str, rounds: int, allowed: int) -> None:
        """A schedule that would open more sums without noise than devices do is refused before it starts."""
        self._count()
        planned = Settings(secure_aggregation=True, rounds=rounds, sums_without_noise=allowed, repeats=True)
        refused = False
        try:
            check_sums(planned, _METHODS[method])
        except ConfigError:
            refused = True
        assert refused == (rounds > (1 if method == "fedease" else allowed))

    def _masking(self, number: int) -> Masking:
        found = self.nodes[number].kinds["advertise"].__self__  # type: ignore[attr-defined]
        assert isinstance(found, Masking)
        return found


_METHODS = {name: find(name, {}) for name in ("fedease", "fedmf")}


def _offer(federation: str, agreement: Agreement) -> Packet:
    return Packet({"protocol": PROTOCOL, "federation": federation, "agreement": agreement.model_dump()})


def _said(node: Node) -> str:
    return node.device.store.settings().get("join_next", "")


def _kept(node: Node) -> list[Any]:
    """Everything but the outbox."""
    store = node.device.store
    tables = ("settings", "federations", "rounds", "evaluations", "interactions", "members", "tensors")
    return [[tuple(row) for row in store.rows(f"SELECT * FROM {table} ORDER BY rowid")] for table in tables]


def _protects(now: Agreement, then: Agreement) -> bool:
    """Whether an offer protects as well as another one, by every single promise."""

    def sums(each: Agreement) -> float:
        noisy = (each.noise or 0) >= LEAST_NOISE and each.epsilon is not None
        return 0 if not each.masked or noisy else math.inf if each.sums is None else each.sums

    return (
        now.masked >= then.masked
        and (now.least_nodes or 0) >= (then.least_nodes or 0)
        and (now.least_users or 0) >= (then.least_users or 0)
        and now.groups <= then.groups
        and (now.clip or math.inf) <= (then.clip or math.inf)
        and (now.noise or 0) >= (then.noise or 0)
        and sums(now) <= sums(then)
        and (now.epsilon or math.inf) <= (then.epsilon or math.inf)
        and (now.evaluations or 0) <= (then.evaluations or 0)
    )


@pytest.fixture
def machine(world, tmp_path) -> type[EveryStep]:
    make_keys(tmp_path / "keys", DEVICES)
    made: Local = world(sizes=(1,) * DEVICES, keys=tmp_path / "keys", least_users=1)
    for device in made.devices.values():
        Ledger(device.store).join_next(False)
        device.close()
    manifest = made.bundle.manifest

    class Machine(EveryStep):
        world = World(made.folder, model_digest(manifest), manifest.catalogue_version)

    made.devices.clear()
    return Machine


def run(machine: type[EveryStep], steps: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=max(1, steps // EACH),
            stateful_step_count=EACH,
            deadline=None,
            database=None,
            report_multiple_bugs=False,
            derandomize=steps < 10_000,  # the everyday suite takes the same steps
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )


@attack(
    "lying server",
    "Whatever the order of steps, a device never answers below what its owner agreed to.",
    before="not looked at: terms were compared with the policy alone, and cohorts with those of one round",
)
def test_every_step(machine, reached):
    while machine.steps < STEPS:  # some beginnings end before their last step
        run(machine, STEPS - machine.steps + EACH)
    print(f"\n{machine.steps} steps, {machine.opened_in_all} sums opened")
    assert machine.opened_in_all > 0
    reached(f"nothing below it in {machine.steps:,} steps, with {machine.opened_in_all:,} sums opened")


@pytest.mark.parametrize("rule_", ["cohort", "limit", "agreement"])
def test_the_machine_finds_a_rule_that_is_missing(machine, monkeypatch, rule_):
    """The control: without one of the rules, it does not take many steps."""
    careless = Policy(least_nodes=2, least_users=1, least_share=0.1, sums_without_noise=2)
    machine.start = careless, Agreement(masked=True, least_nodes=4, sums=2)
    if rule_ == "cohort":
        monkeypatch.setattr(approving.Approval, "check_cohort", lambda *_: None)
    elif rule_ == "limit":
        monkeypatch.setattr(Ledger, "opened", lambda *_, **__: [])
    else:
        monkeypatch.setattr(Policy, "under", lambda policy, agreed: policy)
    with pytest.raises(AssertionError):
        run(machine, 6_000)
