"""What an edge does with one relay: orders to its members, and their answers in one message."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection

import numpy as np

from solera.deploy.common.protocol import Packet, Reason, RefusalError
from solera.deploy.common.relays import BOX, VECTOR, Relay, orders_of, relayed
from solera.deploy.server.patience import Patience
from solera.privacy.secagg.primitives import Ring

_LOG = logging.getLogger("solera.edge")


class Relaying:
    """One relay under way. Boxes stay closed, and of masked vectors there is only the sum."""

    def __init__(self, packet: Packet, here: Collection[int], group: str = "") -> None:
        self.relay, self.group = Relay.of(packet), group  # of messages: the id of the round
        everybody = orders_of(self.relay, packet.arrays)
        self.orders = {member: order for member, order in everybody.items() if member in here}
        groups = enumerate(self.relay.adding)
        self._group = {member: place for place, adding in groups for member in adding.members}
        self._sums: dict[int, Ring] = {}
        self._added: dict[int, list[int]] = {}
        self._boxes: dict[int, bytes] = {}
        self._changed = threading.Condition()
        self._is_over = False

    def is_waiting_for(self, member: int) -> bool:
        """Whether a member's answer is missing."""
        return not self._is_over and member in self.orders and member not in self._boxes

    def order(self, member: int) -> Packet | None:
        """A member's order, unless it has answered."""
        return self.orders.get(member) if self.is_waiting_for(member) else None

    def take(self, member: int, packet: Packet) -> None:
        """A member's answer; a second one, or one that is not as it should be, is refused."""
        arrays = packet.arrays
        if BOX not in arrays or not arrays.keys() <= {BOX, VECTOR}:
            raise RefusalError(Reason.NAMES, f"no sealed answer: {str(packet.fields.get('declined'))[:200]}")
        vector = arrays.get(VECTOR)
        with self._changed:
            if self._is_over or member not in self.orders or member in self._boxes:
                raise RefusalError(Reason.LATE, "the member was not asked, or its answer is late")
            if vector is not None:
                self._add(member, vector.tobytes())
            self._boxes[member] = arrays[BOX].tobytes()
            self._changed.notify_all()

    def gone(self, member: int) -> None:
        """No answer will come from a member."""
        with self._changed:
            if member not in self._boxes:
                self.orders.pop(member, None)
            self._changed.notify_all()

    def _add(self, member: int, vector: bytes) -> None:
        place = self._group.get(member)
        if place is None or len(vector) != self.relay.adding[place].bytes:
            raise RefusalError(Reason.SHAPES, "a vector that does not fit")
        adding = self.relay.adding[place]
        values: Ring = np.frombuffer(vector, f"<u{adding.bits // 8}")
        if place in self._sums:
            self._sums[place] += values
        else:
            self._sums[place] = values.copy()
        self._added.setdefault(place, []).append(member)

    def wait(self, patience: Patience) -> None:
        """Wait until all members have answered, or for as long as the server allows."""
        began, relay, enough_at = time.monotonic(), self.relay, 0.0
        quorum, end = patience.quorum(len(self.orders), 0), relay.seconds
        patience.begin_round(relay.wait)
        counted: set[int] = set()
        with self._changed:
            while (now := time.monotonic() - began) < end and (waiting := self.orders.keys() - self._boxes):
                self._changed.wait(min(end - now, 1.0))
                took = time.monotonic() - began
                for member in self._boxes.keys() - counted:
                    patience.answered(relay.kind, member, took)
                counted |= self._boxes.keys()
                if len(self._boxes) >= quorum:
                    enough_at = enough_at or took
                    end = min(relay.seconds, patience.until(relay.kind, waiting - counted, enough_at))
            self._is_over = True

    def answer(self, here: Collection[int]) -> Packet:
        """What goes to the server."""
        with self._changed:
            self._is_over = True
            sums = [(sorted(members), self._sums[place]) for place, members in sorted(self._added.items())]
            return relayed(self.relay.federation, self._boxes, sums, sorted(here))
