"""The server's half of a federation, without a network: sampling, checking and aggregation.

The order of a round: `invite` and `enrol` whoever is new; `begin`, which gives the orders to be sent; `take`
for every reply; `close`, which makes the next state and saves it. All that lasts is in the folder, so a new
coordinator goes on where the last one saved.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection
from dataclasses import asdict
from typing import Any

import numpy as np

from solera.core.errors import RunError
from solera.core.types import Ints
from solera.device.tensors import Arrays
from solera.engine.simulation import choose
from solera.federation.common.protocol import Answer, Order, Packet, Reason, RefusalError
from solera.federation.common.uploads import Bounds
from solera.federation.secure.influence import next_bound
from solera.federation.server.federation import FederationServer
from solera.federation.server.openings import Opening
from solera.federation.server.round import Reply, Round


class Coordinator(FederationServer):
    """The rounds of a federation."""

    def begin(self, attempt: int, online: Collection[int]) -> dict[int, Packet]:
        """Plan a round, and return the order for every node that has some of the round's users."""
        now = self.plan(attempt, online)
        packets = {node: self._packet(order) for node, order in now.orders.items()}
        now.bytes_down = sum(packet.bytes for packet in packets.values())
        return packets

    def plan(self, attempt: int, online: Collection[int]) -> Round:
        """Sample the round's users. Nodes with recent faults are excluded for a while."""
        number, ledger = self.progress.number, self.progress.ledger
        fixed = set(self.fixed_cohort)  # without one of these, no sum would be opened any more
        able_nodes = {
            node
            for node, entry in ledger.nodes.items()
            if node in online and (entry.out_until <= number or node in fixed)
        }
        where = {
            client: (node, slot) for node in able_nodes for slot, client in ledger.nodes[node].numbers.items()
        }
        if not where:
            raise RunError(
                "no node has any users", "import a history on a device, then run the command again"
            )
        able = np.array(sorted(where), dtype=np.int64)
        wanted, chosen = self._choose(able, number)
        by_node: dict[int, list[tuple[int, int]]] = {}
        if self.private:  # who was drawn does not show in who is asked
            by_node = {node: [] for node in ledger.nodes if node in able_nodes}
        for client in chosen.tolist():
            node, slot = where[client]
            by_node.setdefault(node, []).append((slot, client))
        orders = {node: self._order(node, number, attempt, pairs) for node, pairs in by_node.items()}
        least = max(1, math.ceil(self.settings.min_replies * (len(orders) if self.private else wanted)))
        server = self.state.begin(self.private.begin(len(able), number) if self.private else None)
        self.round = Round(
            number,
            attempt,
            wanted,
            len(able),
            least,
            max(1, math.ceil(self.settings.min_replies * len(orders))),
            orders,
            server,
            by_nodes=self.private is not None,
        )
        return self.round

    def open(self, opening: Opening) -> None:
        """Record that the sums of a round are about to be opened. Their privacy cost counts in any case."""
        self.folder.open_sums(opening)
        self.pending = opening

    def resume(self, opening: Opening) -> Round:
        """Resume the round whose sums were being opened when the server stopped."""
        self.folder.note_opening(opening)
        self.progress = opening.progress
        self.state.make_room(self._users)
        private = self.private.begin(opening.able, opening.terms.round) if self.private else None
        self.round = Round(
            opening.terms.round,
            opening.terms.attempt,
            opening.wanted,
            opening.able,
            1,
            1,
            opening.orders,
            self.state.begin(private),
            by_nodes=self.private is not None,
        )
        return self.round

    def give_up_opening(self) -> None:
        """Abandon the sums that were being opened. Their privacy cost stays spent."""
        if self.pending is not None:
            self.journal("lost", round=self.pending.terms.round + 1)
            self.pending = None
            self.folder.close_opening()
            self._count_lost()

    def take(self, node: int, packet: Packet) -> None:
        """Check a reply and accept it, or raise a refusal with the reason."""
        assert self.round is not None
        now, order = self.round, self.round.orders.get(node)
        if order is None:
            raise RefusalError(Reason.MEMBERS, "the node was not asked")
        if node in now.answered:
            raise RefusalError(Reason.TWICE, "the node has already answered")
        now.answered.add(node)
        answer = Answer.of(packet)
        self._check(answer, order)
        reply = self._read(node, answer, order, packet.arrays)
        now.users += len(reply.clients)
        now.bytes_up += packet.bytes
        self.folder.event("taken", node=str(node), round=now.number + 1, sha256=packet.digest)
        if self.adapts and self.bound is None:
            now.waiting.append(reply)
        else:
            self._enter(now, reply)

    def _enter(self, now: Round, reply: Reply) -> None:
        """Add an update to the round."""
        if reply.sent is not None:
            self.state.add(now.server, reply.clients, reply.sent)
            now.peaks.append(reply.peak)
        self.accept(reply.node, reply.slots)

    def _compare(self, now: Round) -> None:
        """Add the updates of a first round, except those that are far larger than the others."""
        bound = next_bound(None, [reply.peak for reply in now.waiting if reply.sent is not None])
        for reply in now.waiting:
            found = 0.0 if reply.sent is None else self.state.peak_of(reply.sent)
            if bound is not None and found > bound:
                now.users -= len(reply.clients)
                said = f"a number of {found:.3g} per user; the others' make it {bound:.3g} at most"
                self.reject(reply.node, Reason.NORM, said)
            else:
                self._enter(now, reply)

    def accept(self, node: int, slots: list[int]) -> None:
        """Record that a node's update was accepted, and which users the node has now."""
        assert self.round is not None
        entry = self.progress.ledger.nodes[node]
        entry.accepted, entry.behind = self.round.orders[node].token, 0
        self.round.nodes.append(node)
        left = self.progress.ledger.members(node, slots)
        self.state.erase(left)

    def fault(self, node: int, message: str) -> None:
        """Record that a node sent what no honest node sends. Repeated faults exclude it for longer."""
        entry = self.progress.ledger.nodes[node]
        entry.faults += 1
        entry.out_until = self.progress.number + 2 ** min(entry.faults, 20)
        self.reject(node, Reason.FAULTY, message)

    def reject(self, node: int, reason: Reason, message: str) -> None:
        """Count a rejected reply and write it to the event log."""
        if self.round is not None:
            self.round.rejected[reason] += 1
        if reason is Reason.DECLINED:
            self._ask_again.add(node)
        where = {} if self.round is None else {"round": self.round.number + 1, "attempt": self.round.attempt}
        self.folder.event("rejected", node=str(node), reason=reason, message=message, **where)

    def close(self) -> dict[str, Any] | None:
        """End the round: save the next state and return its summary, or None if it does not count."""
        assert self.round is not None
        self._compare(self.round)
        now, self.round = self.round, None
        missed = set() if now.enough else now.orders.keys() - now.answered
        for node in missed:
            now.rejected[Reason.NO_REPLY] += 1
            self.folder.event(
                "rejected", node=str(node), reason=Reason.NO_REPLY, message="no reply", round=now.number + 1
            )
        if not now.counts:
            came = {"nodes": len(now.nodes)} if now.by_nodes else {"users": now.users}
            self.folder.event("void", round=now.number + 1, attempt=now.attempt, **came, needed=now.least)
            self._undo_round()
            return None
        cover = self.private.cover(now.users) if self.private else None
        self.state.conclude(now.server, now.number, cover)
        for node, entry in self.progress.ledger.nodes.items():
            entry.behind += node not in now.nodes
        self.progress.rounds_done += 1
        self.progress.number = now.number + 1
        if self.adapts and now.masked is None:
            self.progress.bound = next_bound(self.progress.bound, now.peaks)
        self.state.make_room(self._users)
        self.folder.save(self.progress, self.state.shared, self.state.held)
        self.pending = None
        self.folder.close_opening()
        entry_ = {
            "round": now.number + 1,
            "rounds": max(self.rounds, now.number + 1),
            "attempt": now.attempt,
            "clients": now.users,
            "wanted": now.wanted,
            "nodes": len(now.nodes),
            "rejected": {str(reason): count for reason, count in sorted(now.rejected.items())},
            "bytes": {"up": now.bytes_up, "down": now.bytes_down},
            "seconds": round(time.monotonic() - now.began, 3),
            "stages": {kind: asdict(stage) for kind, stage in now.stages.items()},
        } | ({"masked": now.masked} if now.masked else {})
        self.folder.add_round(entry_)
        return entry_

    def _choose(self, able: Ints, number: int) -> tuple[int, Ints]:
        """Number of users that a round needs, and the users to ask."""
        if self.private:
            if self.progress.rounds_done >= self.rounds:
                raise RunError(
                    f"all {self.rounds} rounds that the privacy budget ε covers are done",
                    "start a new federation; its ε adds to this one's",
                )
            chosen = self.private.choose(able, number)
            return len(chosen), chosen
        if self.method.client_share == 1:
            return len(able), able
        wanted = len(choose(able, self.method.client_share, self.seed, number))
        more = min(len(able), math.ceil(wanted * self.settings.over_selection))
        return wanted, choose(able, more / len(able), self.seed, number)

    def _undo_round(self) -> None:
        """Undo a round that did not count. Nodes see it by the update that was accepted last."""
        saved = self.folder.load()
        before = saved[0].ledger.nodes if saved else {}
        for node, entry in self.progress.ledger.nodes.items():
            entry.accepted = before[node].accepted if node in before else ""
        self.state.undo_round(saved[1] if saved else None, self._users)

    def _check(self, answer: Answer, order: Order) -> None:
        self._same_federation(answer.federation)
        if (answer.round, answer.attempt) != (order.round, order.attempt):
            raise RefusalError(
                Reason.ROUND,
                f"the answer is for round {answer.round}, attempt {answer.attempt}; the order was "
                f"{order.token}",
            )
        if answer.version != order.version:
            raise RefusalError(Reason.CATALOGUE, f"the update is for catalogue {answer.version}")
        asked = set(order.slots)
        if len(set(answer.trained)) != len(answer.trained) or not set(answer.trained) <= asked:
            raise RefusalError(Reason.MEMBERS, "the answer names users who were not asked, or one user twice")
        if not set(answer.trained) <= set(answer.slots):
            raise RefusalError(Reason.MEMBERS, "the answer names users who do not exist")
        self.check_claim(answer.slots)

    def _read(self, node: int, answer: Answer, order: Order, arrays: Arrays) -> Reply:
        number = dict(zip(order.slots, order.numbers, strict=True))
        clients = np.array([number[slot] for slot in answer.trained], dtype=np.int64)
        if not len(clients):
            if arrays:
                raise RefusalError(Reason.NAMES, "an upload was sent, but no user has trained")
            return Reply(node, answer.slots, clients, None, 0.0)
        sent = self.state.read(arrays, self._bounds(order, len(clients)))
        return Reply(node, answer.slots, clients, sent, answer.peak)

    def _bounds(self, order: Order, clients: int) -> Bounds:
        return Bounds(
            n_items=self.bundles[order.version].manifest.items,
            clients=clients,
            max_norm=self.private.longest if self.private else self.max_norm,
            dtype=np.dtype("<f8") if self.private else self.state.wire,
            alike=self.private is not None,
            largest=order.bound or math.inf,
        )
