"""The server's record of its nodes."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from solera.federation.common.protocol import Enrolment


class NodeEntry(BaseModel):
    """One node: its catalogue's version, its users by slot, and the last update that was taken."""

    model_config = ConfigDict(extra="forbid")

    version: int
    numbers: dict[int, int]  # slot → the number by which a user draws, and is known to the aggregate
    identity: str = ""  # the public key of a node that can mask
    accepted: str = ""
    behind: int = 0  # rounds since that
    faults: int = 0  # times that it sent what no honest node sends
    out_until: int = 0  # number of the round before which it is not asked, for its faults


class Ledger(BaseModel):
    """All nodes that ever enrolled. A user's number is never given again."""

    model_config = ConfigDict(extra="forbid")

    nodes: dict[int, NodeEntry] = Field(default_factory=dict)
    next_number: int = 0

    def enrol(self, node: int, enrolment: Enrolment) -> None:
        """Register a node. A node that enrols again keeps the numbers of its users."""
        known = self.nodes.get(node)
        if known is None:
            self.nodes[node] = NodeEntry(version=enrolment.version, numbers={})
        else:
            known.version = enrolment.version
        self.nodes[node].identity = enrolment.identity or ""
        self.members(node, enrolment.slots)

    def members(self, node: int, slots: list[int]) -> list[int]:
        """The users who are there by now: new ones get numbers. The numbers of those who left."""
        entry, here = self.nodes[node], set(slots)
        left = [number for slot, number in entry.numbers.items() if slot not in here]
        entry.numbers = {slot: number for slot, number in entry.numbers.items() if slot in here}
        for slot in sorted(here - entry.numbers.keys()):
            entry.numbers[slot] = self.next_number
            self.next_number += 1
        return left
