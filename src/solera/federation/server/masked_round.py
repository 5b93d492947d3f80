"""The server's half of a masked round, in which it learns only sums over groups of nodes.

Every stage is one message to every node that is still there. A node that does not answer, or answers what the
protocol refuses, is out. A group goes on while its threshold of nodes is left. Whose masked upload has come
in time is in its group's sum, and nobody else. Whether there are enough users is decided before the masks are
taken off: a sum that is known is also used, as a second one over other nodes would tell their difference.

Before anybody is asked to reveal, everything that opening needs is on the disk. A server that crashes after
that asks for the same shares again and ends the same round; no second sum of it is opened.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from solera.core.errors import RunError
from solera.federation.common.protocol import MESSAGE, MaskedAnswer, Order, Packet, Reason, RefusalError, Step
from solera.federation.common.uploads import check_arrays
from solera.federation.secure.terms import (
    Member,
    NodeGroup,
    RoundTerms,
    Task,
    groups_of,
    model_digest,
    state_digest,
)
from solera.federation.server.coordinator import Coordinator
from solera.federation.server.group_sums import GroupSum, take_in
from solera.federation.server.openings import Opening, OpeningGroup
from solera.federation.server.round import Round
from solera.privacy.secagg import SecAggError, Server

FIXED = "and sums without noise are over one cohort alone"
STAGES = ("advertise", "share", "mask", "confirm", "unmask")
Take = Callable[[int, Packet], None]
Exchange = Callable[[str, dict[int, Packet], Take], None]  # kind, what to send, what to do with the answers


def run_masked(
    coordinator: Coordinator, attempt: int, online: Collection[int], exchange: Exchange
) -> dict[str, Any] | None:
    """Run one masked round. Return its summary, or None if it does not count."""
    nodes = coordinator.progress.ledger.nodes
    able = {n for n in online if n in nodes and nodes[n].identity and nodes[n].version == coordinator.newest}
    if not able:
        raise RunError(
            "no node takes part in masked rounds", "start the nodes with --roster and the newest bundle"
        )
    now = coordinator.plan(attempt, able)
    try:
        masked = MaskedRound.begin(coordinator, now)
        for kind in STAGES[:-1]:
            masked.exchange(kind, exchange)
        coordinator.open(masked.opening())
        masked.exchange("unmask", exchange)
        masked.conclude()
    except (SecAggError, RefusalError) as error:
        coordinator.journal("broken off", round=now.number + 1, attempt=attempt, message=error.message)
    return _closed(coordinator, now)


def finish_opening(coordinator: Coordinator, opening: Opening, exchange: Exchange) -> dict[str, Any] | None:
    """Open the sums that the server was about to open when it stopped; None if too few nodes answer."""
    now = coordinator.resume(opening)
    try:
        masked = MaskedRound.at_opening(coordinator, now, opening)
        masked.exchange("unmask", exchange)
        masked.conclude()
    except (SecAggError, RefusalError) as error:
        coordinator.journal("broken off", round=now.number + 1, attempt=now.attempt, message=error.message)
    return _closed(coordinator, now)


def _closed(coordinator: Coordinator, now: Round) -> dict[str, Any] | None:
    now.answered = set(now.orders)  # whoever was missed has been counted at its stage
    return coordinator.close()


@dataclass
class Session:
    """One group: its nodes, in the order of the terms, and what each is sent next."""

    place: int
    nodes: list[int]
    server: Server
    next: dict[int, bytes] = field(default_factory=dict)
    sum: GroupSum | None = None


class MaskedRound:
    """One attempt."""

    def __init__(
        self, coordinator: Coordinator, now: Round, terms: RoundTerms, sessions: list[Session]
    ) -> None:
        self._coordinator, self._now, self._terms = coordinator, now, terms
        self._sessions = sessions
        self._tasks: dict[int, Task] = {}
        self._slots: dict[int, list[int]] = {}
        now.masked = {
            "members": sum(len(each.nodes) for each in sessions),
            "threshold": sum(each.server.setup.threshold for each in sessions),
        } | ({"groups": len(terms.groups)} if len(terms.groups) > 1 else {})

    @classmethod
    def begin(cls, coordinator: Coordinator, now: Round) -> MaskedRound:
        """Write the terms for the nodes that take part."""
        tasks = {node: _task(order) for node, order in now.orders.items()}
        entries = coordinator.progress.ledger.nodes
        by_key = {entries[node].identity: node for node in now.orders}
        if len(by_key) < len(now.orders):
            raise RefusalError(Reason.MEMBERS, "two nodes have the same key")
        settings, roster = coordinator.settings, coordinator.roster
        assert roster is not None
        users = {node: len(order.slots) for node, order in now.orders.items()}
        groups, nodes = [], []
        for part in groups_of(roster, settings.groups):
            here = [by_key[key] for key in part if key in by_key]
            threshold = settings.threshold_of(len(here), len(roster.nodes))
            if coordinator.fixed_cohort:  # its devices decline any other
                fixed = [node for node in coordinator.fixed_cohort if entries[node].identity in part]
                here = [node for node in here if node in fixed]
                if len(here) < len(fixed):
                    raise RefusalError(Reason.MEMBERS, f"{len(here)} of {len(fixed)} nodes are here, {FIXED}")
            if len(here) < threshold:
                coordinator.journal(
                    "too few", round=now.number + 1, attempt=now.attempt, nodes=len(here), needed=threshold
                )
                raise RefusalError(
                    Reason.MEMBERS,
                    f"{len(here)} of {len(part)} nodes are present; a masked sum needs {threshold}",
                )
            members = tuple(
                Member(key=entries[node].identity, users=users[node], task=tasks[node].digest)
                for node in here
            )
            groups.append(NodeGroup(threshold=threshold, members=members))
            nodes.append(here)
        terms = RoundTerms(
            federation=coordinator.identity.federation,
            round=now.number,
            attempt=now.attempt,
            nonce=secrets.token_hex(16),
            state=state_digest(coordinator.arrays()),
            model=model_digest(coordinator.bundles[coordinator.newest].manifest),
            roster=roster.digest,
            capacity=1 << max(0, max(users.values()) - 1).bit_length(),
            least_users=settings.least_users,
            clip=coordinator.private.clip if coordinator.private else None,
            noise=coordinator.private.share if coordinator.private else None,
            bound=coordinator.bound,
            groups=tuple(groups),
        )
        sessions = [
            Session(place, here, Server(terms.setup(place, coordinator.method, coordinator.n_items)))
            for place, here in enumerate(nodes)
        ]
        for session in sessions:
            session.next = dict.fromkeys(range(len(session.nodes)), b"")
        now.places = {node: session.place for session in sessions for node in session.nodes}
        now.encodings = [session.server.setup.encoding for session in sessions]
        made = cls(coordinator, now, terms, sessions)
        made._tasks = tasks
        return made

    @classmethod
    def at_opening(cls, coordinator: Coordinator, now: Round, opening: Opening) -> MaskedRound:
        """Restore a round that stopped when its sums were about to be opened."""
        sessions = [
            Session(each.place, each.nodes, Server.at_opening(each.kept, each.total), each.requests)
            for each in opening.groups
        ]
        made = cls(coordinator, now, opening.terms, sessions)
        made._slots = opening.slots
        return made

    def opening(self) -> Opening:
        """Everything that the last stage needs, to be saved before that stage begins."""
        self._coordinator.progress.cohort = sorted(
            each.nodes[number] for each in self._sessions for number in each.server.survivors
        )
        groups = []
        for session in self._sessions:
            kept, total = session.server.opening()
            groups.append(
                OpeningGroup(
                    place=session.place, nodes=session.nodes, kept=kept, total=total, requests=session.next
                )
            )
        return Opening(
            terms=self._terms,
            orders=self._now.orders,
            slots=self._slots,
            progress=self._coordinator.progress,
            wanted=self._now.wanted,
            able=self._now.able,
            groups=groups,
        )

    def exchange(self, kind: str, exchange: Exchange) -> None:
        """Send a stage's messages, take the answers, and see which groups are left."""
        who = {
            session.nodes[number]: (session, number) for session in self._sessions for number in session.next
        }
        sent = {
            node: self._packet(kind, node, session.next[number]) for node, (session, number) in who.items()
        }
        self._now.bytes_down += sum(packet.bytes for packet in sent.values())
        answers: dict[int, list[tuple[int, bytes]]] = {each.place: [] for each in self._sessions}
        waiting = set(sent)

        def take(node: int, packet: Packet) -> None:
            waiting.discard(node)
            session, number = who[node]
            answers[session.place].append((number, self._message(kind, node, packet)))
            self._now.bytes_up += packet.bytes

        exchange(kind, sent, take)
        for node in sorted(waiting):
            self._coordinator.reject(node, Reason.NO_REPLY, f"no reply to {kind}")
        self._sessions = [
            session for session in self._sessions if self._goes_on(session, kind, answers[session.place])
        ]
        if 2 * len(self._sessions) < len(self._terms.groups) or not self._sessions:
            raise RefusalError(Reason.MEMBERS, f"too few groups are left after {kind}")

    def conclude(self) -> None:
        """Add the sums to the round, and accept the updates of the nodes that stayed."""
        coordinator, now = self._coordinator, self._now
        sums = [session.sum for session in self._sessions if session.sum]
        now.users, taken = take_in(coordinator, now.server, sums)
        now.least = 1
        self._sessions = [session for session in self._sessions if session.place in taken]
        for session in self._sessions:
            for number in session.server.survivors:
                node = session.nodes[number]
                coordinator.accept(node, self._slots[node])
        survivors = sum(len(session.server.survivors) for session in self._sessions)
        now.masked = {**(now.masked or {}), "survivors": survivors}

    def _packet(self, kind: str, node: int, data: bytes) -> Packet:
        if kind == "advertise":
            return Packet(self._terms.model_dump(mode="json"))
        message = {MESSAGE: np.frombuffer(data, np.uint8)}
        if kind == "mask":
            return Packet(self._tasks[node].model_dump(), self._coordinator.arrays() | message)
        step = Step(federation=self._terms.federation, round=self._terms.round, attempt=self._terms.attempt)
        return Packet(step.model_dump(), message)

    def _message(self, kind: str, node: int, packet: Packet) -> bytes:
        """Check that an answer belongs to this round, and return its bytes."""
        answer: Step = MaskedAnswer.of(packet) if kind == "mask" else Step.of(packet)
        if answer.token != self._terms.token:
            raise RefusalError(Reason.ROUND, f"the answer is for {answer.token}")
        if isinstance(answer, MaskedAnswer):
            if answer.version != self._now.orders[node].version:
                raise RefusalError(Reason.CATALOGUE, f"the update is for catalogue {answer.version}")
            self._coordinator.check_claim(answer.slots)
            self._slots[node] = answer.slots
        check_arrays({MESSAGE: (np.dtype("u1"), ("b",))}, packet.arrays)
        return packet.arrays[MESSAGE].tobytes()

    def _goes_on(self, session: Session, kind: str, answers: list[tuple[int, bytes]]) -> bool:
        """Whether a group has come through a stage; whoever did what it should not is named."""
        server = session.server
        refused, faulty = set(server.refused), set(server.faulty)
        try:
            self._collect(session, kind, answers)
        except (SecAggError, RefusalError) as error:
            where = {"group": session.place} if len(self._terms.groups) > 1 else {}
            self._coordinator.journal(
                "group lost", round=self._now.number + 1, message=error.message, **where
            )
            if len(self._terms.groups) == 1:
                raise
            return False
        finally:
            for number in server.refused.keys() - refused - server.faulty.keys():
                self._coordinator.reject(session.nodes[number], Reason.SECURE, server.refused[number])
            for number in server.faulty.keys() - faulty:
                self._coordinator.fault(session.nodes[number], server.faulty[number])
        return True

    def _collect(self, session: Session, kind: str, answers: list[tuple[int, bytes]]) -> None:
        server = session.server
        match kind:
            case "advertise":
                session.next = server.collect_keys(answers)
            case "share":
                session.next = server.collect_shares(answers)
            case "mask":
                session.next = server.collect_masked(answers)
                self._check_users(session)
            case "confirm":
                session.next = server.collect_confirmations(answers)
            case _:
                session.sum = GroupSum(
                    session.place, server.total(answers), self._asked(session), len(server.survivors)
                )

    def _check_users(self, session: Session) -> None:
        """As many as can be known without a look at the sum: those who were asked on nodes that answered."""
        users, nodes = self._asked(session), len(session.server.survivors)
        if self._coordinator.fixed_cohort and nodes < len(session.nodes):
            raise RefusalError(Reason.MEMBERS, f"{nodes} of {len(session.nodes)} nodes answered, {FIXED}")
        if users < self._terms.least_users:
            raise RefusalError(
                Reason.MEMBERS, f"{users} users have answered, {self._terms.least_users} are needed"
            )
        if len(self._terms.groups) == 1 and not self._now.is_enough(users, nodes):
            raise RefusalError(Reason.MEMBERS, f"{users} users have answered, {self._now.least} are needed")

    def _asked(self, session: Session) -> int:
        members = self._terms.groups[session.place].members
        return sum(members[number].users for number in session.server.survivors)


def _task(order: Order) -> Task:
    assert order.round is not None
    fields = order.model_dump(include={"federation", "attempt", "version", "newest", "accepted"})
    return Task(
        **fields, round=order.round, slots=order.slots, numbers=order.numbers, salt=secrets.token_hex(16)
    )
