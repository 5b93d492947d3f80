"""The rounds of a federation over a network: what is sent to whom, how long answers are waited for."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

from solera.core.errors import RunError, SoleraError
from solera.federation.common.json_log import current_round, in_round, round_id
from solera.federation.common.protocol import Packet, Reason, RefusalError
from solera.federation.server.coordinator import Coordinator
from solera.federation.server.folder import FederationFolder
from solera.federation.server.masked_round import Take, finish_opening, run_masked
from solera.federation.server.network import Answered, Network
from solera.federation.server.round import Stage

_LOG = logging.getLogger(__name__)
_SOON, _RARELY = 0.02, 0.25  # seconds between looks for answers, while some come and while none do
_GRACE = 60  # seconds that a task outlives its round, so that a late answer is seen to be late
ENOUGH = 2 / 3  # share of the nodes asked after which the rest is waited for no longer than usual
_LONGER = 1.5  # times what a node took before
ENROL = "enrol"


class Patience:
    """How long the server waits for the last answers of an exchange.

    A node that hangs must not hold up all others until the deadline. Once enough nodes have answered, the
    server waits for the rest as long as each of them took before, and half as long again. For a node that
    hangs, or has never answered, it waits `straggler_wait` seconds longer, in all exchanges of a round
    together. Enrolment may take half of what is left: a node that hangs while it enrols must not use up the
    time of those that train.
    """

    def __init__(self, straggler_wait: float) -> None:
        self._wait = self._left = straggler_wait
        self._took: dict[tuple[str, int], float] = {}

    def begin_round(self, wait: float | None = None) -> None:
        """A new round may wait as long as the last, or another time."""
        self._left = self._wait if wait is None else wait

    def answered(self, kind: str, node: int, seconds: float) -> None:
        """A node has answered, in time or not."""
        self._took[kind, node] = seconds

    def spend(self, seconds: float) -> None:
        """So much of the round was spent on waiting for the last."""
        self._left = max(0.0, self._left - seconds)

    def quorum(self, asked: int, threshold: int) -> int:
        """How many answers are enough to lose patience with the rest; `threshold` are needed in any case."""
        return max(1, math.floor(ENOUGH * asked + 1e-9), min(threshold, asked))

    def until(self, kind: str, waiting: Collection[int], enough_at: float) -> float:
        """Seconds after the start of an exchange at which it ends; enough had answered at `enough_at`."""
        known = [_LONGER * self._took[kind, node] for node in waiting if (kind, node) in self._took]
        left = self._left / 2 if kind == ENROL else self._left
        return max(enough_at + left, *known, 0.0)


def run_federation(network: Network, path: Path, on_round: Callable[[dict[str, object]], None]) -> None:
    """Run the remaining rounds of a federation. A lock prevents two runs at the same time."""
    folder = FederationFolder.open(path)
    with folder.alone():
        coordinator = Coordinator(folder)
        folder.event("started", rounds_done=coordinator.progress.rounds_done)
        try:
            Loop(network, coordinator, on_round).run()
        except SoleraError as error:
            with suppress(RunError):  # a full disk takes no event either
                folder.event("failed", message=error.message, hint=error.hint)
            raise
        folder.event("finished", rounds_done=coordinator.progress.rounds_done)


class Loop:
    """The rounds of one run."""

    def __init__(
        self,
        network: Network,
        coordinator: Coordinator,
        on_round: Callable[[dict[str, object]], None] = lambda entry: None,
    ) -> None:
        self._network, self._coordinator, self._on_round = network, coordinator, on_round
        self._settings = coordinator.settings
        # Of exchanges that are over: device, kind, beginning.
        self._late: dict[str, tuple[int, str, float]] = {}
        self._enrolled_late: dict[int, Answered] = {}  # of devices that are to be in the next round
        self._patience = Patience(self._settings.straggler_wait)

    def run(self) -> None:
        """Run the remaining rounds, then send the final state to all devices."""
        self.rounds(self._coordinator.rounds)
        self.exchange("finish", self._coordinator.farewells(self._online(least=0)), lambda node, packet: None)

    def rounds(self, until: int, may_start: Callable[[], bool] = lambda: True) -> None:
        """Run rounds until so many are done, as long as the next one may start."""
        coordinator = self._coordinator
        while coordinator.progress.rounds_done < until and may_start():
            for attempt in range(self._settings.attempts):
                with in_round(
                    round_id(coordinator.identity.federation, coordinator.progress.number, attempt)
                ):
                    entry = self._round(attempt)
                if entry is not None:
                    self._on_round(entry)
                    break
            else:
                coordinator.give_up_opening()
                raise RunError(
                    f"round {coordinator.progress.rounds_done + 1} failed {attempt + 1} times "
                    "because of too few replies",
                    "see events.jsonl for why, then run again with --resume",
                )

    def _round(self, attempt: int) -> dict[str, object] | None:
        coordinator = self._coordinator
        self._patience.begin_round()
        online = self._online(self._settings.min_nodes)
        while self._enrolled_late:
            self._take(*self._enrolled_late.popitem(), coordinator.enrol)
        self.exchange(ENROL, coordinator.invite(online), coordinator.enrol)
        if coordinator.pending is not None:
            return finish_opening(coordinator, coordinator.pending, self.exchange)
        if self._settings.secure_aggregation:
            return run_masked(coordinator, attempt, online, self.exchange)
        orders = coordinator.begin(attempt, online & coordinator.progress.ledger.nodes.keys())
        now = coordinator.round
        assert now is not None
        self.exchange("train", orders, coordinator.take, lambda: now.enough)
        return coordinator.close()

    def _online(self, least: int) -> set[int]:
        """Wait until enough devices are online, and return them."""
        end = time.monotonic() + self._settings.patience
        while True:
            online = self._network.online()
            if len(online) >= least:
                return online
            if time.monotonic() > end:
                raise RunError(
                    f"only {len(online)} of {least} nodes are online after {self._settings.patience:g} s",
                    "start more nodes, then run again with --resume",
                )
            time.sleep(0.2)

    def exchange(
        self,
        kind: str,
        packets: dict[int, Packet],
        take: Take,
        enough: Callable[[], bool] = lambda: False,
    ) -> None:
        """Send messages and process answers until all or enough have arrived, or time is up."""
        if not packets:
            return
        deadline = self._settings.deadline
        group = current_round() or str(self._coordinator.progress.rounds_done + 1)
        waiting = self._network.send(kind, packets, deadline + _GRACE, group)
        began = time.monotonic()
        stage = Stage(len(packets), messages=len(waiting), down=sum(each.size for each in packets.values()))
        quorum = self._patience.quorum(len(waiting), self._threshold)
        end, enough_at, pause = deadline, 0.0, _SOON
        while waiting and not enough() and (now := time.monotonic() - began) < end:
            time.sleep(min(pause, end - now))
            looked = time.monotonic()
            came = self._network.answers()
            for answered in came:
                if answered.name in waiting:
                    node = waiting.pop(answered.name)
                    self._patience.answered(kind, node, looked - began)
                    stage.up += answered.size
                    stage.replies += 1
                    stage.messages += 1
                    self._take(node, answered, take)
                else:
                    self._take_late(answered, looked)
            # Looking must not be all that the server does.
            pause = max(_SOON if came else min(_RARELY, 2 * pause), 2 * (time.monotonic() - looked))
            if stage.replies >= quorum:
                enough_at = enough_at or looked - began
                end = min(deadline, self._patience.until(kind, waiting.values(), enough_at))
        if enough_at:
            self._patience.spend(time.monotonic() - began - enough_at)
        self._late |= {name: (node, kind, began) for name, node in waiting.items()}
        stage.seconds = round(time.monotonic() - began, 3)
        if self._coordinator.round is not None:
            self._coordinator.round.stages[kind] = stage

    def _take_late(self, answered: Answered, looked: float) -> None:
        """An answer to an exchange that is over; nothing is known of one to a command that was ended."""
        if answered.name not in self._late:
            return
        node, kind, sent = self._late.pop(answered.name)
        self._patience.answered(kind, node, looked - sent)
        if kind == ENROL:
            self._enrolled_late[node] = answered
        else:
            self._coordinator.reject(node, Reason.LATE, "answered after its round")

    @property
    def _threshold(self) -> int:
        """Answers without which a masked round is void."""
        now = self._coordinator.round
        return 0 if now is None or now.masked is None else now.masked["threshold"]

    def _take(self, node: int, answered: Answered, take: Take) -> None:
        """Process an answer."""
        try:
            if isinstance(answered.packet, RefusalError):
                raise answered.packet
            take(node, answered.packet)
        except RefusalError as error:
            _LOG.warning("node %s: %s: %s", node, error.reason, error.message)
            self._coordinator.reject(node, error.reason, error.message)


class RoundsOver:
    """The rounds of whichever coordinator, over one network: what a served federation asks for."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def online(self) -> set[int]:
        """Devices that are there now."""
        return self._network.online()

    def rounds_of(self, coordinator: Coordinator) -> Loop:
        """The rounds of a coordinator."""
        return Loop(self._network, coordinator)
