"""The server's record of its nodes, and the state of a running round."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict, Field

from solera.core.types import Ints
from solera.engine.one_round import Sum
from solera.engine.server import Server
from solera.federation.common.protocol import Enrolment, Order, Reason
from solera.federation.server.state import Read
from solera.privacy.secagg import Encoding


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


@dataclass(frozen=True)
class Reply:
    """A node's update that has passed its checks."""

    node: int
    slots: list[int]
    clients: Ints
    sent: Read | None  # nothing if nobody trained
    peak: float  # as the node says


@dataclass
class Stage:
    """One exchange: nodes asked, replies, seconds; messages of the server, and bytes of fields and arrays."""

    nodes: int
    replies: int = 0
    messages: int = 0  # both ways
    seconds: float = 0.0
    down: int = 0
    up: int = 0


@dataclass
class Round:
    """State of a running round."""

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
    places: dict[int, int] = field(default_factory=dict)  # of a masked round: the group of every node
    encodings: list[Encoding] = field(default_factory=list)  # of every group
    by_nodes: bool = False  # how many users have come must not matter
    waiting: list[Reply] = field(default_factory=list)  # in a first round: until they can be compared
    peaks: list[float] = field(default_factory=list)  # of the nodes whose updates were taken
    stages: dict[str, Stage] = field(default_factory=dict)  # by kind of message

    @property
    def enough(self) -> bool:
        """Whether the round needs no more replies."""
        return len(self.answered) == len(self.orders) or (not self.by_nodes and self.users >= self.wanted)

    def is_enough(self, users: int, nodes: int) -> bool:
        """Whether a round with this many users and nodes counts."""
        if self.by_nodes:
            return nodes >= self.least
        return users >= self.least or (users > 0 and nodes >= self.least_nodes)

    @property
    def counts(self) -> bool:
        """Whether enough replies have arrived for the round to count."""
        return self.is_enough(self.users, len(self.nodes))
