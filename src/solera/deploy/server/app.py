"""The app that Flower runs on the server: it runs the rounds of a federation."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from solera.core.errors import RunError, SoleraError
from solera.deploy.common.flower import home_of
from solera.deploy.common.json_log import current_round, in_round, round_id
from solera.deploy.common.messages import from_content, to_message
from solera.deploy.common.protocol import Packet, Reason, RefusalError
from solera.deploy.server.coordinator import Coordinator
from solera.deploy.server.edges import Edges, Passed, is_greeting
from solera.deploy.server.folder import FederationFolder
from solera.deploy.server.masked_round import Take, finish_opening, run_masked
from solera.deploy.server.patience import ENROL, Patience
from solera.deploy.server.post import Post
from solera.deploy.server.replies import Reply
from solera.deploy.server.round import Stage

_LOG = logging.getLogger(__name__)
_RELAY = "relay"
_SOON, _RARELY = 0.05, 0.25  # seconds between looks for replies, while some come and while none do
_GRACE = 60  # seconds that a message outlives its round, so that a late reply is seen to be late

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Start or continue the federation in the folder that the run names."""
    run_federation(grid, Path(str(context.run_config["folder"])))


def run_federation(grid: Grid, path: Path) -> None:
    """Run the remaining rounds of a federation. A lock prevents two runs at the same time."""
    folder = FederationFolder.open(path)
    with folder.alone():
        _run(grid, folder)


def _run(grid: Grid, folder: FederationFolder) -> None:
    coordinator = Coordinator(folder)
    folder.event("started", rounds_done=coordinator.progress.rounds_done)
    try:
        Loop(grid, coordinator).run()
    except SoleraError as error:
        with suppress(RunError):  # a full disk takes no event either
            folder.event("failed", message=error.message, hint=error.hint)
        raise
    folder.event("finished", rounds_done=coordinator.progress.rounds_done)


class Loop:
    """The rounds of one run."""

    def __init__(self, grid: Grid, coordinator: Coordinator, edges: Edges | None = None) -> None:
        self._post, self._coordinator = Post(grid, coordinator.settings.deadline), coordinator
        self._settings = coordinator.settings
        # Of exchanges that are over: node, kind, beginning.
        self._late: dict[str, tuple[int, str, float]] = {}
        self._enrolled_late: dict[int, Reply] = {}  # of nodes that are to be in the next round
        self._patience = Patience(self._settings.straggler_wait)
        self._edges = edges or Edges(home_of(coordinator.folder.path), coordinator.method)

    def run(self) -> None:
        """Run the remaining rounds, then send the final state to all nodes."""
        self.rounds(self._coordinator.rounds)
        online = self._edges.spread(self._online(least=0))
        self.exchange("finish", self._coordinator.farewells(online), lambda node, packet: None)

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
        self.enrol(online)
        online = self._edges.spread(online)
        if coordinator.pending is not None:
            return finish_opening(coordinator, coordinator.pending, self.exchange)
        if self._settings.secure_aggregation:
            return run_masked(coordinator, attempt, online, self.exchange)
        orders = coordinator.begin(attempt, online & coordinator.progress.ledger.nodes.keys())
        now = coordinator.round
        assert now is not None
        self.exchange("train", orders, coordinator.take, lambda: now.enough)
        return coordinator.close()

    def enrol(self, online: set[int]) -> None:
        """Invite nodes that are new, and then members of edges that have shown to be edges."""
        for _ in range(2):
            invited = self._coordinator.invite(self._edges.spread(online))
            self.exchange(ENROL, invited, self._coordinator.enrol)
            if not any(map(self._edges.is_edge, invited)):
                return

    def _online(self, least: int) -> set[int]:
        """Wait until enough nodes are online, and return them."""
        end = time.monotonic() + self._settings.patience
        while True:
            online = self._post.online()
            if len(online) >= least:
                return online
            if time.monotonic() > end:
                raise RunError(
                    f"only {len(online)} of {least} nodes are online after {self._settings.patience:g} s",
                    "start more nodes, then run again with --resume",
                )
            time.sleep(1)

    def exchange(
        self,
        kind: str,
        packets: dict[int, Packet],
        take: Take,
        enough: Callable[[], bool] = lambda: False,
    ) -> None:
        """Send messages and process replies until all or enough have arrived, or time is up."""
        if not packets:
            return
        deadline = self._settings.deadline
        group = current_round() or str(self._coordinator.progress.rounds_done + 1)
        ttl = deadline + _GRACE
        posts = self._edges.outgoing(
            kind, packets, self._coordinator.round, deadline, self._settings.straggler_wait
        )
        messages = [
            to_message(node, kind if node in packets else _RELAY, p, ttl=ttl, group=group)
            for node, p in posts.items()
        ]
        waiting = dict(zip(self._post.push(messages), posts, strict=True))
        waiting.pop("", None)  # not sent
        began = time.monotonic()
        stage = Stage(len(packets), messages=len(waiting), down=sum(packet.size for packet in posts.values()))
        quorum = self._patience.quorum(len(packets) - len(posts) + len(waiting), self._threshold)
        end, enough_at, pause = deadline, 0.0, _SOON
        while waiting and not enough() and (now := time.monotonic() - began) < end:
            time.sleep(min(pause, end - now))
            looked = time.monotonic()
            came = self._post.pull([*waiting, *self._late])
            for reply in came:
                asked = reply.question
                if asked in self._late:
                    node, earlier, sent = self._late.pop(asked)
                    self._patience.answered(earlier, node, looked - sent)
                    if earlier == ENROL and not self._edges.is_edge(node):
                        self._enrolled_late[node] = reply
                        continue
                    self._coordinator.reject(node, Reason.LATE, "answered after its round")
                elif asked in waiting:
                    node = waiting.pop(asked)
                    self._patience.answered(kind, node, looked - began)
                    up, replies = self._take(node, reply, take)
                    stage.up += up
                    stage.replies += replies
                    stage.messages += 1
            # Looking must not be all that the server does.
            pause = max(_SOON if came else min(_RARELY, 2 * pause), 2 * (time.monotonic() - looked))
            if stage.replies >= quorum:
                enough_at = enough_at or looked - began
                end = min(deadline, self._patience.until(kind, waiting.values(), enough_at))
        if enough_at:
            self._patience.spend(time.monotonic() - began - enough_at)
        self._late |= {asked: (node, kind, began) for asked, node in waiting.items()}
        stage.seconds = round(time.monotonic() - began, 3)
        if self._coordinator.round is not None:
            self._coordinator.round.stages[kind] = stage

    @property
    def _threshold(self) -> int:
        """Answers without which a masked round is void."""
        now = self._coordinator.round
        return 0 if now is None or now.masked is None else now.masked["threshold"]

    def _take(self, node: int, reply: Reply, take: Take) -> tuple[int, int]:
        """Process a reply; returns its bytes, and of how many nodes it is."""
        size, replies = 0, 1
        try:
            if reply.message is None:
                raise RefusalError(Reason.FAILED, reply.error[:500])
            packet = from_content(reply.message.content)
            size = packet.size
            if is_greeting(packet):
                self._edges.greet(node, packet, self._post.online())
            elif self._edges.is_edge(node):
                replies = 0
                for passed in self._edges.incoming(node, packet, self._post.online()):
                    replies += 1
                    self._take_passed(passed, take)
            else:
                take(node, packet)
        except RefusalError as error:
            self._refuse(node, error)
        return size, replies

    def _take_passed(self, passed: Passed, take: Take) -> None:
        try:
            if passed.error is not None:
                raise passed.error
            assert passed.packet is not None
            take(passed.member, passed.packet)
        except RefusalError as error:
            self._refuse(passed.member, error)

    def _refuse(self, node: int, error: RefusalError) -> None:
        _LOG.warning("node %s: %s: %s", node, error.reason, error.message)
        self._coordinator.reject(node, error.reason, error.message)
