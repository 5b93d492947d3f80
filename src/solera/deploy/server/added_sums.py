"""Masked vectors that an edge has added up: each sum is taken whole, or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from solera.deploy.common.protocol import Packet, Reason
from solera.deploy.server.coordinator import Coordinator
from solera.privacy.secagg.server import MaskedSum


@dataclass(frozen=True)
class Added(Packet):
    """A member's answer whose masked vector is in a sum with others'."""

    together: tuple[int, ...] = ()
    vector: bytes = b""


class AddedSums:
    """The sums of one exchange, and what every member in them has said."""

    def __init__(self) -> None:
        self._vectors: dict[tuple[int, ...], bytes] = {}
        self._heads: dict[int, bytes] = {}

    def note(self, packet: Added) -> None:
        """A sum has come; what its members say is still to be checked."""
        self._vectors[packet.together] = packet.vector

    def take(self, node: int, head: bytes) -> None:
        """What a member says is as it should be."""
        self._heads[node] = head

    @property
    def bytes(self) -> int:
        """Of all sums."""
        return sum(map(len, self._vectors.values()))

    def of_groups(
        self, coordinator: Coordinator, numbers: Mapping[int, tuple[int, int]]
    ) -> dict[int, list[MaskedSum]]:
        """The sums by group; `numbers` are the group and the place in it of every node that was asked.

        A sum with a member whose answer is missing or refused is lost, and so are the answers of the others.
        Whoever sent such an answer is left out of the next rounds; an edge may have dropped it, too.
        """
        found: dict[int, list[MaskedSum]] = {}
        for together, vector in self._vectors.items():
            missing = [node for node in together if node not in self._heads]
            places = {numbers[node][0] for node in together if node in numbers}
            if missing or len(places) != 1:
                for node in together:
                    if node in missing and node in numbers:
                        coordinator.fault(node, "its masked vector is in a sum, but its answer is not valid")
                    elif node in numbers:
                        coordinator.reject(node, Reason.EDGE, "the edge's sum has a member without an answer")
                continue
            heads = {numbers[node][1]: self._heads[node] for node in together}
            found.setdefault(places.pop(), []).append(MaskedSum(heads, vector))
        return found
