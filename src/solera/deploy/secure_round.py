"""The server's half of a masked round: what it is told is one sum, over at least a threshold of nodes.

Every stage is one message to every node that is still there. A node that does not answer, or answers what the
protocol refuses, is out; the round goes on while a threshold of nodes is left, and ends without a result
otherwise. Whose masked upload has come in time is in the sum, and nobody else. Whether there are enough users
is decided before the masks are taken off: a sum that is known is also used, as a second one over other nodes
would tell their difference.
"""

from __future__ import annotations

import base64
import math
import secrets
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from solera.core.closed_form import ClosedForm
from solera.core.errors import RunError
from solera.deploy.coordinator import Coordinator, Round
from solera.deploy.masked import contribution_of, encoding_of, sums_of, users_in
from solera.deploy.protocol import (
    MESSAGE,
    MaskedAnswer,
    Packet,
    Proposal,
    Reason,
    RefusalError,
    Step,
    session_of,
)
from solera.deploy.shares import covered_sums
from solera.deploy.uploads import check_arrays
from solera.engine.one_round import Sum
from solera.privacy.secagg import SecAggError, Server, Setup
from solera.privacy.secagg.encoding import Floats

STAGES = ("advertise", "share", "mask", "confirm", "unmask")
Take = Callable[[int, Packet], None]
Exchange = Callable[[str, dict[int, Packet], Take], None]  # kind, what to send, what to do with the answers


def run_masked(
    coordinator: Coordinator, attempt: int, online: Collection[int], exchange: Exchange
) -> dict[str, Any] | None:
    """One round; what there is to tell of it, or None if it does not count."""
    nodes = coordinator.progress.ledger.nodes
    able = {n for n in online if n in nodes and nodes[n].identity and nodes[n].version == coordinator.newest}
    if not able:
        raise RunError(
            "no node takes part in masked rounds", "start the nodes with --roster, on the newest catalogue"
        )
    orders = coordinator.begin(attempt, able)
    now = coordinator.round
    assert now is not None
    try:
        masked = MaskedRound(coordinator, now, orders)
        for kind in STAGES:
            if kind == "unmask":
                coordinator.opening()
            masked.exchange(kind, exchange)
    except (SecAggError, RefusalError) as error:
        coordinator.folder.event("broken off", round=now.number + 1, attempt=attempt, message=error.message)
    now.answered = set(now.orders)  # whoever was missed has been counted at its stage
    return coordinator.close()


class MaskedRound:
    """One attempt."""

    def __init__(self, coordinator: Coordinator, now: Round, orders: dict[int, Packet]) -> None:
        self._coordinator, self.now, self._orders = coordinator, now, orders
        self._members = sorted(orders)
        most = max(len(order.slots) for order in self.now.orders.values())
        shared = orders[self._members[0]].arrays
        nonce = secrets.token_hex(16)
        self._proposal = Proposal(
            federation=coordinator.identity.federation,
            round=self.now.number,
            attempt=self.now.attempt,
            capacity=1 << (most - 1).bit_length(),
            nonce=nonce,
        )
        self._server = Server(self._setup(session_of(nonce, shared)))
        self._next: dict[int, bytes] = dict.fromkeys(range(len(self._members)), self._server.setup.to_bytes())
        self._slots: dict[int, list[int]] = {}

    def exchange(self, kind: str, exchange: Exchange) -> None:
        """Send a stage's messages, take the answers, and see who is left."""
        sent = {
            self._members[n]: self._packet(kind, self._members[n], data) for n, data in self._next.items()
        }
        self.now.bytes_down += sum(len(data) for data in self._next.values())
        answers: dict[int, bytes] = {}

        def take(node: int, packet: Packet) -> None:
            waiting.discard(node)
            answers[self._members.index(node)] = self._message(kind, node, packet)
            self.now.bytes_up += packet.bytes

        waiting = set(sent)
        exchange(kind, sent, take)
        for node in sorted(waiting):
            self._coordinator.reject(node, Reason.NO_REPLY, f"no reply to {kind}")
        self._collect(kind, list(answers.items()))

    def _setup(self, session: bytes) -> Setup:
        coordinator, count = self._coordinator, len(self._members)
        keys = [coordinator.progress.ledger.nodes[node].identity for node in self._members]
        share = coordinator.settings.threshold
        threshold = max(2, count // 2 + 1, math.ceil(share * count - 1e-9))
        if count < threshold or len(set(keys)) < count:
            raise RefusalError(Reason.MEMBERS, f"{count} nodes are too few for a masked round")
        self.now.masked = {"members": count, "threshold": threshold}
        return Setup(
            session=session,
            round=self.now.number,
            threshold=threshold,
            encoding=encoding_of(
                coordinator.method, coordinator.n_items, members=count, capacity=self._proposal.capacity
            ),
            roster=tuple(base64.b64decode(key) for key in keys),
        )

    def _packet(self, kind: str, node: int, data: bytes) -> Packet:
        message = {MESSAGE: np.frombuffer(data, np.uint8)}
        if kind == "mask":
            order = self._orders[node]
            return Packet(order.fields, order.arrays | message)
        if kind == "advertise":
            return Packet(self._proposal.model_dump(), message)
        return Packet(self._step().model_dump(), message)

    def _message(self, kind: str, node: int, packet: Packet) -> bytes:
        """The bytes of an answer that belongs here."""
        answer: Step = MaskedAnswer.of(packet) if kind == "mask" else Step.of(packet)
        if answer.token != self._proposal.token:
            raise RefusalError(Reason.ROUND, f"an answer to {answer.token}")
        if isinstance(answer, MaskedAnswer):
            if answer.version != self.now.orders[node].version:
                raise RefusalError(Reason.CATALOGUE, f"an update of catalogue {answer.version}")
            if len(set(answer.slots)) != len(answer.slots):
                raise RefusalError(Reason.MEMBERS, "a user is there twice")
            self._slots[node] = answer.slots
        check_arrays({MESSAGE: (np.dtype("u1"), ("b",))}, packet.arrays)
        return packet.arrays[MESSAGE].tobytes()

    def _collect(self, kind: str, answers: list[tuple[int, bytes]]) -> None:
        server, before = self._server, set(self._server.refused)
        try:
            match kind:
                case "advertise":
                    self._next = server.collect_keys(answers)
                case "share":
                    self._next = server.collect_shares(answers)
                case "mask":
                    self._next = server.collect_masked(answers)
                    self._check_users()
                case "confirm":
                    self._next = server.collect_confirmations(answers)
                case _:
                    self._conclude(server.total(answers))
        finally:
            for number in server.refused.keys() - before:
                self._coordinator.reject(self._members[number], Reason.SECURE, server.refused[number])

    def _check_users(self) -> None:
        """As many as can be known without a look at the sum: those who were asked on nodes that answered."""
        users = self._asked()
        if not self.now.by_nodes and users < self.now.least:
            raise RefusalError(Reason.MEMBERS, f"{users} users have answered, {self.now.least} are needed")

    def _asked(self) -> int:
        return sum(len(self.now.orders[self._members[n]].slots) for n in self._server.survivors)

    def _conclude(self, values: dict[str, Floats]) -> None:
        """Take the sum in; the survivors' updates count."""
        coordinator, now = self._coordinator, self.now
        method, n_items = coordinator.method, coordinator.n_items
        covered = coordinator.private is not None  # then it is used as it is: it would not be opened twice
        max_norm = coordinator.settings.max_norm
        users = self._asked() if covered else users_in(values, self._asked())
        if isinstance(now.server, Sum):
            assert isinstance(method, ClosedForm)
            now.server.add(contribution_of(method, n_items, values, None if covered else max_norm))
        else:
            assert not isinstance(method, ClosedForm)
            now.server.merge(
                covered_sums(method, n_items, values)
                if covered
                else sums_of(method, n_items, values, max_norm)
            )
        now.users, now.least = users, 1
        for number in self._server.survivors:
            node = self._members[number]
            coordinator.accept(node, self._slots[node])
        now.masked = {**(now.masked or {}), "survivors": len(self._server.survivors)}

    def _step(self) -> Step:
        proposal = self._proposal
        return Step(federation=proposal.federation, round=proposal.round, attempt=proposal.attempt)
