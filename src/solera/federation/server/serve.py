"""The loop of a served federation: train when it is due, judge new versions, deliver published ones.

All that lasts is in the folder. A loop that is killed at any moment goes on where it was: rounds that were
due are finished, a version without a verdict is judged again, and nodes that lack a version get it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from solera.core.errors import RunError, SoleraError
from solera.core.files import PRIVATE, write_atomically
from solera.device.bundle import Bundle
from solera.device.publish import trained_on_devices
from solera.federation.common.protocol import Answer, Packet
from solera.federation.server.coordinator import Coordinator
from solera.federation.server.folder import FederationFolder
from solera.federation.server.gate import Decision, Take, Tally, decide, evaluate
from solera.federation.server.plan import ServePlan
from solera.federation.server.state import ServerState
from solera.federation.server.versions import Version, Versions, is_canary

_LOG = logging.getLogger(__name__)
_REST = 60.0  # seconds until something that failed is tried again
_ASK_AGAIN = 600.0  # seconds until a node that did not take a version, or did not enrol, is asked again
BUNDLE = "published.bundle"
_FILE = "serving.json"
LOCK = "serving.lock"  # held by the app while it serves
State = Literal["waiting", "quiet", "too few nodes", "training", "evaluating", "canary", "spent", "stopped"]


class Serving(BaseModel):
    """What the loop remembers between looks, in serving.json. Times are seconds since 1970."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True)

    state: State = "waiting"
    born: float  # when serving began
    beat: float = 0.0  # when the loop last looked
    last_start: float | None = None  # of the last run that was due, also of one that was skipped
    next_due: float | None = None
    until: int | None = None  # rounds to be done by the run under way
    last_success: float | None = None  # when a run of rounds last reached its end
    failures: int = 0  # runs in a row that failed
    online: int = 0
    smallest_cohort: int = 0
    evaluations: int = 0
    evaluation_epsilon: float = 0.0  # in all, of a user who was asked each time
    told: dict[int, int] = Field(default_factory=dict)  # the version that each node has confirmed

    @classmethod
    def read(cls, folder: Path) -> Serving | None:
        """What is on the disk; None if the federation was never served."""
        path = folder / _FILE
        if not path.exists():
            return None
        try:
            return cls.model_validate_json(path.read_bytes())
        except (OSError, ValidationError) as error:
            raise RunError(
                f"{path} cannot be read: {error}", "restore it from a backup, or delete it"
            ) from None

    def write(self, folder: Path) -> None:
        """Replace the file."""
        write_atomically(folder / _FILE, self.model_dump_json(indent=2) + "\n", PRIVATE)


class Rounds(Protocol):
    """Rounds and messages of one coordinator over a network."""

    def rounds(self, until: int, may_start: Callable[[], bool]) -> None:
        """Run rounds until so many are done."""

    def exchange(self, kind: str, packets: dict[int, Packet], take: Take) -> None:
        """Send messages and process the replies."""


class Network(Protocol):
    """The nodes."""

    def online(self) -> set[int]:
        """Nodes that are online now."""

    def rounds_of(self, coordinator: Coordinator) -> Rounds:
        """The rounds of a coordinator."""


class ServeLoop:
    """One served federation. `now` is a clock in UTC."""

    def __init__(
        self,
        path: Path,
        plan: ServePlan,
        network: Network,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._folder, self._plan, self._network, self._now = FederationFolder.open(path), plan, network, now
        self._schedule = plan.schedule.schedule()
        self._versions = Versions(path)
        self._asked: dict[tuple[int, int], float] = {}  # node and version: when it was last sent
        self._rest_until = 0.0
        self.serving = Serving.read(path) or Serving(born=self._seconds())
        self.serving.smallest_cohort = plan.schedule.smallest_cohort

    def step(self) -> None:
        """Look once: do what is due, or deliver versions to nodes that lack them."""
        online = self._network.online()
        self.serving.online, self.serving.beat = len(online), self._seconds()
        if self._seconds() >= self._rest_until:
            self._look(online)
        self.serving.write(self._folder.path)

    def _look(self, online: Collection[int]) -> None:
        canary, newest = self._versions.standing.canary, self._newest()
        if newest is not None and newest.outcome == "candidate" and self.serving.until is None:
            self._say("evaluating")
            if len(online) >= self._plan.schedule.smallest_cohort:
                self._alone(lambda: self._judge(newest, online))
        elif canary is not None:
            self._say("canary")
            nodes = {node for node in online if is_canary(node, canary, self._plan.gate.canary_share)}
            if self._is_watched(bool(nodes)):
                self._alone(lambda: self._judge_canary(self._versions.get(canary), nodes))
        else:
            self._train_if_due(online)
        self._deliver_where_lacking(self._network.online())

    def stop(self) -> None:
        """Record that the loop has ended on purpose."""
        self._say("stopped")

    def _train_if_due(self, online: Collection[int]) -> None:
        serving, now = self.serving, self._now()
        last = None if serving.last_start is None else datetime.fromtimestamp(serving.last_start, UTC)
        due = self._schedule.next_due(last, datetime.fromtimestamp(serving.born, UTC))
        serving.next_due = due.timestamp()
        if serving.until is None and (now < due or serving.state == "spent"):
            self._say(serving.state if serving.state == "spent" else "waiting")
        elif self._schedule.is_quiet(now):
            self._say("quiet")
        elif len(online) >= self._plan.schedule.smallest_cohort:
            self._alone(self._train)
        elif serving.until is None and now >= due + self._plan.schedule.patience:
            serving.last_start = now.timestamp()
            self._folder.event("skipped", online=len(online), needed=self._plan.schedule.smallest_cohort)
        else:
            self._say("too few nodes")

    def _train(self) -> None:
        """Run the rounds that are due, and make a version of what comes out."""
        serving, schedule = self.serving, self._plan.schedule
        if serving.until is None:
            serving.last_start = self._seconds()
        try:
            coordinator = self._prepared()
            if serving.until is None:
                serving.until = coordinator.progress.rounds_done + schedule.rounds
                if coordinator.method.rounds_needed:
                    serving.until = coordinator.progress.rounds_done + coordinator.method.rounds_needed
            if coordinator.private:
                serving.until = min(serving.until, coordinator.rounds)
            if coordinator.private and coordinator.progress.rounds_done >= coordinator.rounds:
                serving.until = None
                self._say("spent")
                return
            self._say("training")
            self._folder.event("started", rounds_done=coordinator.progress.rounds_done)
            rounds = self._network.rounds_of(coordinator)
            rounds.rounds(serving.until, lambda: not self._schedule.is_quiet(self._now()))
        except SoleraError as error:
            self._folder.event("failed", message=error.message, hint=error.hint)
            _LOG.warning("the run failed: %s", error.message)
            serving.until, serving.failures = None, serving.failures + 1
            return
        done = coordinator.progress.rounds_done
        if done < serving.until:
            return  # quiet hours have begun: it goes on after them
        self._folder.event("finished", rounds_done=done)
        newest = self._newest()
        if newest is None or newest.round != done:
            shared, held = coordinator.state.shared, coordinator.state.held
            self._versions.add(shared, held, round_=done, catalogue=coordinator.newest, time=self._seconds())
        serving.until, serving.failures, serving.last_success = None, 0, self._seconds()

    def _prepared(self) -> Coordinator:
        """The coordinator, with the newest catalogue and the settings of the plan."""
        folder, plan = self._folder, self._plan
        bundle = Bundle.open(plan.bundle)
        newest = folder.bundles()[-1]
        if bundle.manifest.catalogue_version > newest.manifest.catalogue_version:
            folder.add_bundle(bundle)
            folder.event("catalogue", version=bundle.manifest.catalogue_version)
        given = plan.given()
        settings = folder.identity.settings
        if settings.dp is None:
            done = folder.progress.rounds_done
            given["rounds"] = max(self.serving.until or 0, done + plan.schedule.rounds)
        else:
            given.pop("dp", None)
        if changes := {name: value for name, value in given.items() if getattr(settings, name) != value}:
            folder.change(changes)
        return Coordinator(folder)

    def _judge(self, version: Version, online: Collection[int]) -> None:
        """Decide about a new version: reject it, try it on some nodes, or publish it."""
        coordinator = Coordinator(self._folder)
        decision, tally = self._decided(coordinator, version, online)
        version = self._versions.note(version, tally=tally, reason=decision.reason)
        if not decision.passes:
            self._versions.reject(version.number, decision.reason)
            self._go_back(coordinator)
            self._tell(version, "rejected", decision.reason)
        elif self._plan.gate.canary_share and self._versions.standing.published is not None:
            self._versions.try_out(version.number, self._seconds())
            self._tell(version, "canary", decision.reason)
        else:
            self._publish(coordinator, version, decision.reason)
        self._versions.prune(self._plan.versions.keep)

    def _is_watched(self, some_online: bool) -> bool:
        """Whether the canary's time is over. If none of its nodes is online, it gets that time once more."""
        watched = self._plan.gate.watched.total_seconds() * (1 if some_online else 2)
        return self._seconds() >= self._versions.standing.since + watched

    def _judge_canary(self, version: Version, nodes: Collection[int]) -> None:
        """Promote the canary, or withdraw it. Without answers of enough users it is withdrawn."""
        coordinator = Coordinator(self._folder)
        decision, tally = self._decided(coordinator, version, nodes, self._plan.gate.canary_share)
        version = self._versions.note(version, canary_tally=tally)
        if decision.passes:
            self._publish(coordinator, version, decision.reason)
        else:
            self._versions.roll_back(decision.reason, self._seconds())
            self._go_back(coordinator)
            self._tell(version, "rolled back", decision.reason)
        self._versions.prune(self._plan.versions.keep)

    def _decided(
        self, coordinator: Coordinator, version: Version, nodes: Collection[int], share: float = 1.0
    ) -> tuple[Decision, Tally | None]:
        gate = self._plan.gate
        if not gate.evaluate:
            return Decision(True, "the gate does not evaluate"), None
        if self.serving.evaluation_epsilon + gate.epsilon > gate.total_epsilon + 1e-9:
            spent = f"evaluations have cost ε = {self.serving.evaluation_epsilon:g} of {gate.total_epsilon:g}"
            return Decision(False, f"{spent}: set evaluate = false to publish without them"), None
        exchange = self._network.rounds_of(coordinator).exchange
        tally = evaluate(coordinator, self._state_of(coordinator, version.number), nodes, gate, exchange)
        self.serving.evaluations += 1
        self.serving.evaluation_epsilon += gate.epsilon
        published = self._versions.standing.published
        former = None if published is None else self._versions.get(published).tally
        least = max(1, round(share * gate.least_users))
        decision = decide(tally, former, least_users=least, largest_drop=gate.largest_drop)
        self._folder.event(
            "evaluated",
            version=version.number,
            users=tally.users,
            hit_rate=round(tally.rate, 6),
            passes=decision.passes,
        )
        return decision, tally

    def _publish(self, coordinator: Coordinator, version: Version, reason: str) -> None:
        self._versions.publish(version.number, self._seconds())
        self._tell(version, "published", reason)
        key = self._plan.versions.publisher_key
        if key is not None:
            told = {"federation": coordinator.identity.federation, "round": version.round}
            bundle = coordinator.bundles[coordinator.newest]
            shared = self._state_of(coordinator, version.number).shared
            try:
                trained_on_devices(bundle, shared, self._folder.path / BUNDLE, key, told)
            except SoleraError as error:  # devices get the version all the same
                self._folder.event("failed", message=error.message, hint=error.hint)

    def _go_back(self, coordinator: Coordinator) -> None:
        """Let training continue from the published version. Rounds that were done stay counted."""
        published = self._versions.standing.published
        if published is not None:
            state = self._state_of(coordinator, published)
            self._folder.save(coordinator.progress, state.shared, state.held)

    def _state_of(self, coordinator: Coordinator, number: int) -> ServerState:
        users = coordinator.progress.ledger.next_number
        return ServerState(coordinator.bundles[coordinator.newest], users, self._versions.load(number))

    def _deliver_where_lacking(self, online: Collection[int]) -> None:
        """Deliver to nodes that lack the version they are to have, and enrol new nodes."""
        if self._versions.standing.published is None or self._schedule.is_quiet(self._now()):
            return
        lacking = {node: target for node in online if (target := self._lacks(node)) is not None}
        if lacking:
            self._alone(lambda: self._deliver(lacking))

    def _lacks(self, node: int) -> int | None:
        target = self._versions.target(node, self._plan.gate.canary_share)
        if target is None or self.serving.told.get(node) == target:
            return None
        return target if self._seconds() - self._asked.get((node, target), 0.0) >= _ASK_AGAIN else None

    def _deliver(self, lacking: dict[int, int]) -> None:
        coordinator = Coordinator(self._folder)
        exchange = self._network.rounds_of(coordinator).exchange
        known = set(coordinator.progress.ledger.nodes)
        exchange("enrol", coordinator.invite(lacking.keys() - known), coordinator.enrol)
        if coordinator.progress.ledger.nodes.keys() - known and self._folder.load() is not None:
            self._folder.save(coordinator.progress, coordinator.state.shared, coordinator.state.held)
        for target in sorted(set(lacking.values())):
            state = self._state_of(coordinator, target)
            nodes = {node for node, wanted in lacking.items() if wanted == target}

            def confirm(node: int, packet: Packet, version: int = target) -> None:
                Answer.of(packet)
                self.serving.told[node] = version

            exchange("finish", coordinator.farewells(nodes, state), confirm)
        for node, target in lacking.items():
            self._asked[node, target] = self._seconds()

    def _alone(self, do: Callable[[], Any]) -> None:
        """Do something that changes the folder, alone. An error is an event, and the loop goes on."""
        try:
            with self._folder.alone():
                do()
        except SoleraError as error:
            _LOG.warning("%s", error.message)
            self._rest_until = self._seconds() + _REST
            try:
                self._folder.event("failed", message=error.message, hint=error.hint)
            except RunError:  # a full disk takes no event either
                _LOG.warning("the disk takes no event")

    def _newest(self) -> Version | None:
        return next(reversed(self._versions.all()), None)

    def _tell(self, version: Version, outcome: str, reason: str) -> None:
        self._folder.event("version", version=version.number, outcome=outcome, reason=reason)

    def _say(self, state: State) -> None:
        self.serving.state = state
        self.serving.write(self._folder.path)

    def _seconds(self) -> float:
        return self._now().timestamp()
