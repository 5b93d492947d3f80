"""A federation as its server knows it between rounds: its settings, its state, and who takes part."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from solera.core.errors import RunError
from solera.core.fixed_point import check_summable
from solera.device.bundle import CATALOGUE
from solera.device.policy import is_noisy
from solera.device.tensors import Arrays
from solera.dp.noise import Randomness, System
from solera.federation.common.protocol import Enrolment, Offer, Order, Packet, Reason, RefusalError
from solera.federation.node.work import deployable
from solera.federation.secure.masked import check_size
from solera.federation.server.folder import FederationFolder
from solera.federation.server.openings import Opening, RoundProgress
from solera.federation.server.privacy import PrivateFederation, agreement, settled
from solera.federation.server.round import Round
from solera.federation.server.state import ServerState


class FederationServer:
    """State of a federation between rounds, and its nodes."""

    def __init__(self, folder: FederationFolder, randomness: Randomness | None = None) -> None:
        """`randomness` is for tests: what covers users comes from the operating system."""
        self.folder = folder
        self.identity, self.settings = folder.identity, folder.identity.settings
        self.bundles = {bundle.manifest.catalogue_version: bundle for bundle in folder.bundles()}
        self.newest = max(self.bundles)
        latest = self.bundles[self.newest]
        self.n_items, self.seed = latest.manifest.items, latest.manifest.seed
        saved = folder.load()
        self.progress = saved[0] if saved else RoundProgress()
        _check_latest(self.progress.rounds_done, folder)
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
            dp = settled(self.settings, self.method).dp
            assert dp is not None
            self.private = PrivateFederation(dp, self.method, randomness or System())
        self._count_lost()
        if self.private and self.rounds < 1:
            raise RunError(
                "the privacy budget ε is spent: all sums that it covers were opened, but none could be used",
                "start a new federation; its ε adds to this one's",
            )
        self.roster = folder.roster if self.settings.secure_aggregation else None
        self.round: Round | None = None
        self._ask_again: set[int] = set()

    @property
    def _users(self) -> int:
        """Number of users that have ever enrolled."""
        return self.progress.ledger.next_number

    @property
    def rounds(self) -> int:
        """Total number of rounds.

        Under --dp, a sum that was opened and then lost cannot be recovered; its privacy cost stays spent.
        """
        lost = self._lost if self.private else 0
        return self.settings.total_rounds(self.method.rounds_needed) - lost

    @property
    def bound(self) -> float | None:
        """Bound at which a user's values are clipped, if known."""
        return None if self.private else self.settings.max_norm or self.progress.bound

    @property
    def max_norm(self) -> float:
        """Largest accepted L2 norm of one user's change."""
        return self.settings.max_norm or math.inf

    @property
    def adapts(self) -> bool:
        """Whether the bound adapts to earlier uploads. A method of one round has none."""
        return self.private is None and self.settings.max_norm is None and self.method.rounds_needed != 1

    @property
    def fixed_cohort(self) -> list[int]:
        """The nodes of all sums without noise: devices open such sums over one cohort alone."""
        is_fixed = self.roster is not None and not is_noisy(self.private.share if self.private else None)
        return (self.progress.cohort or self.folder.opened_cohort()) if is_fixed else []

    def journal(self, kind: str, **what: Any) -> None:
        """Write an entry to the event log."""
        self.folder.event(kind, **what)

    def invite(self, online: Collection[int]) -> dict[int, Packet]:
        """Offers for nodes that have not enrolled, or that declined (e.g. for another catalogue)."""
        asked = Packet(self._offer().model_dump(exclude_none=True))
        known = {
            node
            for node, entry in self.progress.ledger.nodes.items()
            if entry.identity or self.roster is None
        }
        new = set(online) - known | self._ask_again.intersection(online)
        self._ask_again.clear()
        return dict.fromkeys(sorted(new), asked)

    def enrol(self, node: int, packet: Packet) -> None:
        """Register a node that answered an offer."""
        enrolment = Enrolment.of(packet)
        self._same_federation(enrolment.federation)
        bundle = self.bundles.get(enrolment.version)
        if bundle is None or bundle.manifest.sha256[CATALOGUE] != enrolment.catalogue:
            known = ", ".join(map(str, self.bundles))
            raise RefusalError(
                Reason.CATALOGUE, f"catalogue {enrolment.version} is not one of this federation's ({known})"
            )
        if enrolment.method != self.method.name:
            raise RefusalError(Reason.CATALOGUE, f"the device is set up for method {enrolment.method!r}")
        if self.roster is not None and enrolment.identity not in self.roster.nodes.values():
            what = "is not in the roster" if enrolment.identity else "was started without --roster"
            raise RefusalError(Reason.SECURE, f"the node {what}")
        self.check_claim(enrolment.slots)
        self.progress.ledger.enrol(node, enrolment)
        self.state.make_room(self._users)
        self.folder.event("enrolled", node=str(node), users=len(enrolment.slots), catalogue=enrolment.version)

    def check_claim(self, slots: list[int]) -> None:
        """Refuse a node with too many users, or with a user listed twice."""
        if len(slots) > self.settings.users_per_node:
            raise RefusalError(
                Reason.MEMBERS, f"{len(slots)} users on one node; the limit is {self.settings.users_per_node}"
            )
        if len(set(slots)) != len(slots):
            raise RefusalError(Reason.MEMBERS, "a user is listed twice")

    def farewells(self, online: Collection[int], state: ServerState | None = None) -> dict[int, Packet]:
        """Messages with the final state, or another one, for all online nodes."""
        packets = {}
        for node, entry in self.progress.ledger.nodes.items():
            if node in online:
                order = self._order(node, None, 0, list(entry.numbers.items()))
                packets[node] = self._packet(order, state)
        return packets

    def arrays(self) -> Arrays:
        """The state that all members of a masked round train from."""
        return self.state.arrays_for(self.progress.number, [], self.n_items)

    def _offer(self) -> Offer:
        """What this federation offers to nodes."""
        return Offer(
            federation=self.identity.federation,
            agreement=agreement(self.settings, self.rounds),
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
        """Count rounds whose sums were opened but lost. Their numbers are not used again."""
        opened = self.folder.opened_rounds()
        if self.pending is not None:
            opened -= {self.pending.terms.round}
        self.progress.number = max(
            self.progress.number, self.progress.rounds_done, max(opened, default=-1) + 1
        )
        self._lost = max(0, len(opened) - self.progress.rounds_done)

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
            hold_back=self.settings.hold_back and number is not None,
        )

    def _packet(self, order: Order, state: ServerState | None = None) -> Packet:
        n_items = self.bundles[order.version].manifest.items
        fields = order.model_dump(exclude=None if order.hold_back else {"hold_back"})
        return Packet(fields, (state or self.state).arrays_for(order.round, order.numbers, n_items))

    def _same_federation(self, federation: str) -> None:
        if federation != self.identity.federation:
            raise RefusalError(Reason.FEDERATION, f"the answer is for federation {federation}")


def _check_latest(rounds_done: int, folder: FederationFolder) -> None:
    """Refuse a checkpoint that is older than the history, or is gone: its rounds would be run again."""
    in_history = len({line["round"] for line in folder.lines("history.jsonl")})
    if in_history > rounds_done:
        raise RunError(
            f"{folder.path}: {in_history} rounds are in the history, but the checkpoint is of round"
            f" {rounds_done}",
            "restore a backup with `solera federation restore`; or start a new federation in another folder",
        )
