"""The server's half of a federation, without a network: who is asked, what is taken, what comes of it.

The order of a round: `invite` and `enrol` whoever is new; `begin`, which gives the orders to be sent; `take`
for every reply; `close`, which makes the next state and saves it. All that lasts is in the folder, so a new
coordinator goes on where the last one saved.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from solera.core.errors import RunError
from solera.core.fixed_point import check_summable
from solera.data.ragged import Ints
from solera.deploy.folder import FederationFolder
from solera.deploy.influence import next_bound
from solera.deploy.masked import check_size
from solera.deploy.node import deployable
from solera.deploy.openings import Opening, Progress
from solera.deploy.private import PrivateFederation, check_progress, settled
from solera.deploy.protocol import Answer, Enrolment, Invitation, Order, Packet, Reason, RefusalError
from solera.deploy.server_state import Read, ServerState
from solera.deploy.uploads import Bounds
from solera.device.bundle import CATALOGUE
from solera.device.tensors import Arrays
from solera.engine.one_round import Sum
from solera.engine.server import Server
from solera.engine.simulation import choose
from solera.privacy.dp.noise import Randomness, System


@dataclass(frozen=True)
class Reply:
    """A node's update that has passed its checks."""

    node: int
    slots: list[int]
    clients: Ints
    sent: Read | None  # nothing if nobody trained
    peak: float  # as the node says


@dataclass
class Round:
    """What a round has come to so far."""

    number: int
    attempt: int
    wanted: int  # users
    able: int  # users who might have been drawn
    least: int  # users, or nodes where it goes by nodes, below which it does not count
    least_nodes: int  # that are enough as well: users are what nodes claim, and claims may be false
    orders: dict[int, Order]  # by node
    server: Server | Sum
    began: float = field(default_factory=time.monotonic)
    answered: set[int] = field(default_factory=set)
    users: int = 0  # whose updates were taken
    nodes: list[int] = field(default_factory=list)
    rejected: Counter[Reason] = field(default_factory=Counter)
    bytes_up: int = 0
    bytes_down: int = 0
    masked: dict[str, int] | None = None  # members, threshold and survivors, where uploads are masked
    by_nodes: bool = False  # how many users have come must not matter
    waiting: list[Reply] = field(default_factory=list)  # in a first round: until they can be compared
    peaks: list[float] = field(default_factory=list)  # of the nodes whose updates were taken

    @property
    def enough(self) -> bool:
        """Whether there is no need to wait for anybody else."""
        return len(self.answered) == len(self.orders) or (not self.by_nodes and self.users >= self.wanted)

    def is_enough(self, users: int, nodes: int) -> bool:
        """Whether so many users on so many nodes make a round that counts."""
        if self.by_nodes:
            return nodes >= self.least
        return users >= self.least or (users > 0 and nodes >= self.least_nodes)

    @property
    def counts(self) -> bool:
        """Whether enough have come."""
        return self.is_enough(self.users, len(self.nodes))


class Coordinator:
    """A federation as its server knows it."""

    def __init__(self, folder: FederationFolder, randomness: Randomness | None = None) -> None:
        """`randomness` is for tests: what covers users comes from the operating system."""
        self.folder = folder
        self.identity, self.settings = folder.identity, folder.identity.settings
        self.bundles = {bundle.manifest.catalogue_version: bundle for bundle in folder.bundles()}
        self.newest = max(self.bundles)
        latest = self.bundles[self.newest]
        self.n_items, self.seed = latest.manifest.items, latest.manifest.seed
        saved = folder.load()
        self.progress = saved[0] if saved else Progress()
        self.state = ServerState(latest, self._users, saved[1] if saved else None)
        self.method = self.state.method
        deployable(self.method)
        if self.settings.secure_aggregation:
            check_summable(self.method)
            check_size(self.method, self.n_items)
        self.private: PrivateFederation | None = None
        self._lost = 0  # sums that were opened, and of which nothing came
        self.pending = self._pending()
        if self.settings.dp is not None:
            check_progress(self.progress.rounds_done, folder.lines("history.jsonl"))
            dp = settled(self.settings, self.method).dp
            assert dp is not None
            self.private = PrivateFederation(dp, self.method, randomness or System())
        self._count_lost()
        if self.private and self.rounds < 1:
            raise RunError(
                "all sums that ε was accounted for were opened, and nothing came of them",
                "begin another federation; its ε adds to this one's",
            )
        self.roster = folder.roster if self.settings.secure_aggregation else None
        self.round: Round | None = None
        self.signed: list[
            dict[int, int]
        ] = []  # nodes and users of masked sums that nodes agreed to, unopened
        self._ask_again: set[int] = set()

    @property
    def _users(self) -> int:
        """Who ever enrolled."""
        return self.progress.ledger.next_number

    @property
    def rounds(self) -> int:
        """How many rounds the federation takes.

        Under --dp, a sum that was opened and then lost cannot be recovered; its privacy cost stays spent.
        """
        return (self.method.rounds_needed or self.settings.rounds) - (self._lost if self.private else 0)

    @property
    def bound(self) -> float | None:
        """Where a user's numbers are cut off, if that is known."""
        return None if self.private else self.settings.max_norm or self.progress.bound

    @property
    def max_norm(self) -> float:
        """The L2 norm up to which one user's change is taken."""
        return self.settings.max_norm or math.inf

    @property
    def adapts(self) -> bool:
        """Whether the bound follows from what users send. A method of one round has no earlier rounds."""
        return self.private is None and self.settings.max_norm is None and self.method.rounds_needed != 1

    def journal(self, kind: str, **what: Any) -> None:
        """Tell whoever watches."""
        self.folder.event(kind, **what)

    def invite(self, online: Collection[int]) -> dict[int, Packet]:
        """Invitations for nodes that have not enrolled, or declined, say for another catalogue."""
        asked = Packet(self._invitation().model_dump(exclude_none=True))
        known = {
            node
            for node, entry in self.progress.ledger.nodes.items()
            if entry.identity or self.roster is None
        }
        new = set(online) - known | self._ask_again.intersection(online)
        self._ask_again.clear()
        return dict.fromkeys(sorted(new), asked)

    def enrol(self, node: int, packet: Packet) -> None:
        """Enter a node that answered an invitation."""
        enrolment = Enrolment.of(packet)
        self._same_federation(enrolment.federation)
        bundle = self.bundles.get(enrolment.version)
        if bundle is None or bundle.manifest.sha256[CATALOGUE] != enrolment.catalogue:
            known = ", ".join(map(str, self.bundles))
            raise RefusalError(
                Reason.CATALOGUE, f"catalogue {enrolment.version} is none of this federation's ({known})"
            )
        if enrolment.method != self.method.name:
            raise RefusalError(Reason.CATALOGUE, f"a device of {enrolment.method!r}")
        if self.roster is not None and enrolment.identity not in self.roster.nodes.values():
            what = "is not in the roster" if enrolment.identity else "was started without --roster"
            raise RefusalError(Reason.SECURE, f"the node {what}")
        self.check_claim(enrolment.slots)
        self.progress.ledger.enrol(node, enrolment)
        self.state.make_room(self._users)
        self.folder.event("enrolled", node=str(node), users=len(enrolment.slots), catalogue=enrolment.version)

    def check_claim(self, slots: list[int]) -> None:
        """Refuse more users than a node may have, or one that is there twice."""
        if len(slots) > self.settings.users_per_node:
            raise RefusalError(
                Reason.MEMBERS, f"{len(slots)} users on one node, at most {self.settings.users_per_node}"
            )
        if len(set(slots)) != len(slots):
            raise RefusalError(Reason.MEMBERS, "a user is there twice")

    def begin(self, attempt: int, online: Collection[int]) -> dict[int, Packet]:
        """Plan a round, and say to every node that has any of its users what it is to do."""
        now = self.plan(attempt, online)
        packets = {node: self._packet(order) for node, order in now.orders.items()}
        now.bytes_down = sum(packet.bytes for packet in packets.values())
        return packets

    def plan(self, attempt: int, online: Collection[int]) -> Round:
        """Choose the round's users. Nodes with faults are left out for a while."""
        number, ledger = self.progress.number, self.progress.ledger
        able_nodes = {n for n, entry in ledger.nodes.items() if n in online and entry.out_until <= number}
        where = {
            client: (node, slot) for node in able_nodes for slot, client in ledger.nodes[node].numbers.items()
        }
        if not where:
            raise RunError("no node has any users", "import a history on a device, then run again")
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
        """The sums of a round are about to be known here: they count, whatever comes of them."""
        self.folder.open_sums(opening)
        self.pending = opening

    def resume(self, opening: Opening) -> Round:
        """The round whose sums were being opened when the server stopped."""
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
        """Go on without the sums that were being opened. What they cost stays spent."""
        if self.pending is not None:
            self.journal("lost", round=self.pending.terms.round + 1)
            self.pending = None
            self.folder.close_opening()
            self._count_lost()

    def take(self, node: int, packet: Packet) -> None:
        """Check a reply and take it in, or say why not."""
        assert self.round is not None
        now, order = self.round, self.round.orders.get(node)
        if order is None:
            raise RefusalError(Reason.MEMBERS, "the node was not asked")
        if node in now.answered:
            raise RefusalError(Reason.TWICE, "the node has answered before")
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
        """Take an update in."""
        if reply.sent is not None:
            self.state.add(now.server, reply.clients, reply.sent)
            now.peaks.append(reply.peak)
        self.accept(reply.node, reply.slots)

    def _compare(self, now: Round) -> None:
        """Take in the updates of a first round, without those that are far larger than the others."""
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
        """A node's update is taken: it will be told so, and these users are there by now."""
        assert self.round is not None
        entry = self.progress.ledger.nodes[node]
        entry.accepted, entry.behind = self.round.orders[node].token, 0
        self.round.nodes.append(node)
        left = self.progress.ledger.members(node, slots)
        self.state.erase(left)

    def fault(self, node: int, message: str) -> None:
        """Name a node that sent what no honest node sends, and leave it out: the longer, the more often."""
        entry = self.progress.ledger.nodes[node]
        entry.faults += 1
        entry.out_until = self.progress.number + 2 ** min(entry.faults, 20)
        self.reject(node, Reason.FAULTY, message)

    def reject(self, node: int, reason: Reason, message: str) -> None:
        """Count something that was not taken, and tell whoever watches."""
        if self.round is not None:
            self.round.rejected[reason] += 1
        if reason is Reason.DECLINED:
            self._ask_again.add(node)
        where = {} if self.round is None else {"round": self.round.number + 1, "attempt": self.round.attempt}
        self.folder.event("rejected", node=str(node), reason=reason, message=message, **where)

    def close(self) -> dict[str, Any] | None:
        """End the round: the next state, saved, and what there is to tell; None if it does not count."""
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
        self.signed.clear()
        self.folder.close_opening()
        entry_ = {
            "round": now.number + 1,
            "rounds": self.rounds,
            "attempt": now.attempt,
            "clients": now.users,
            "wanted": now.wanted,
            "nodes": len(now.nodes),
            "rejected": {str(reason): count for reason, count in sorted(now.rejected.items())},
            "bytes": {"up": now.bytes_up, "down": now.bytes_down},
            "seconds": round(time.monotonic() - now.began, 3),
        } | ({"masked": now.masked} if now.masked else {})
        self.folder.add_round(entry_)
        return entry_

    def farewells(self, online: Collection[int]) -> dict[int, Packet]:
        """The final state, for every node that is there."""
        packets = {}
        for node, entry in self.progress.ledger.nodes.items():
            if node in online:
                order = self._order(node, None, 0, list(entry.numbers.items()))
                packets[node] = self._packet(order)
        return packets

    def arrays(self) -> Arrays:
        """The state that all members of a masked round train from."""
        return self.state.arrays_for(self.progress.number, [], self.n_items)

    def _invitation(self) -> Invitation:
        """What this federation offers."""
        private = self.private
        return Invitation(
            federation=self.identity.federation,
            masked=self.roster is not None,
            clip=private.clip if private else None,
            noise=private.share if private else None,
            rounds=self.rounds,
            roster=self.roster.model_dump_json() if self.roster else None,
        )

    def _pending(self) -> Opening | None:
        """Sums that were being opened when the server stopped; none if their round was saved after that."""
        found = self.folder.opening()
        if found is not None and found.terms.round < max(self.progress.number, self.progress.rounds_done):
            self.folder.close_opening()
            return None
        return found

    def _count_lost(self) -> None:
        """Rounds whose sums were opened, and of which nothing came: their numbers are not used again."""
        opened = self.folder.opened_rounds()
        if self.pending is not None:
            opened -= {self.pending.terms.round}
        self.progress.number = max(
            self.progress.number, self.progress.rounds_done, max(opened, default=-1) + 1
        )
        self._lost = max(0, len(opened) - self.progress.rounds_done)

    def _choose(self, able: Ints, number: int) -> tuple[int, Ints]:
        """How many users a round needs, and whom to ask."""
        if self.private:
            if self.progress.rounds_done >= self.rounds:
                raise RunError(
                    f"all {self.rounds} rounds that ε was accounted for are done",
                    "begin another federation; its ε adds to this one's",
                )
            chosen = self.private.choose(able, number)
            return len(chosen), chosen
        if self.method.client_share == 1:
            return len(able), able
        wanted = len(choose(able, self.method.client_share, self.seed, number))
        more = min(len(able), math.ceil(wanted * self.settings.over_selection))
        return wanted, choose(able, more / len(able), self.seed, number)

    def _undo_round(self) -> None:
        """A round that did not count has not been: nodes are told so by what was accepted before."""
        saved = self.folder.load()
        before = saved[0].ledger.nodes if saved else {}
        for node, entry in self.progress.ledger.nodes.items():
            entry.accepted = before[node].accepted if node in before else ""
        self.state.undo_round(saved[1] if saved else None, self._users)

    def _order(self, node: int, number: int | None, attempt: int, pairs: list[tuple[int, int]]) -> Order:
        entry = self.progress.ledger.nodes[node]
        return Order(
            federation=self.identity.federation,
            round=number,
            attempt=attempt,
            version=entry.version,
            newest=self.newest,
            accepted=entry.accepted,
            slots=[slot for slot, _ in pairs],
            numbers=[client for _, client in pairs],
            clip=self.private.clip if self.private and number is not None else None,
            bound=self.bound if number is not None else None,
        )

    def _packet(self, order: Order) -> Packet:
        n_items = self.bundles[order.version].manifest.items
        return Packet(order.model_dump(), self.state.arrays_for(order.round, order.numbers, n_items))

    def _same_federation(self, federation: str) -> None:
        if federation != self.identity.federation:
            raise RefusalError(Reason.FEDERATION, f"an answer to federation {federation}")

    def _check(self, answer: Answer, order: Order) -> None:
        self._same_federation(answer.federation)
        if (answer.round, answer.attempt) != (order.round, order.attempt):
            raise RefusalError(
                Reason.ROUND,
                f"an answer to round {answer.round}, attempt {answer.attempt}; asked was {order.token}",
            )
        if answer.version != order.version:
            raise RefusalError(Reason.CATALOGUE, f"an update of catalogue {answer.version}")
        asked = set(order.slots)
        if len(set(answer.trained)) != len(answer.trained) or not set(answer.trained) <= asked:
            raise RefusalError(Reason.MEMBERS, "users have trained who were not asked, or twice")
        if not set(answer.trained) <= set(answer.slots):
            raise RefusalError(Reason.MEMBERS, "users have trained who are not there")
        self.check_claim(answer.slots)

    def _read(self, node: int, answer: Answer, order: Order, arrays: Arrays) -> Reply:
        number = dict(zip(order.slots, order.numbers, strict=True))
        clients = np.array([number[slot] for slot in answer.trained], dtype=np.int64)
        if not len(clients):
            if arrays:
                raise RefusalError(Reason.NAMES, "nobody has trained, but something was sent")
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
