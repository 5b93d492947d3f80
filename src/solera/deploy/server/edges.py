"""Edges as the server sees them: one connection each, with many members behind it.

The rounds know members only, as nodes like all others. Orders to the members of an edge leave in one message,
and the answers to them come in one. Each is checked here as if the member had sent it: see envelopes.py.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from solera.core.closed_form import AnyMethod
from solera.core.errors import DeployError
from solera.deploy.common.envelopes import Exchange
from solera.deploy.common.known_keys import KnownKeys
from solera.deploy.common.protocol import PROTOCOL, Packet, Reason, RefusalError
from solera.deploy.common.relays import Adding, Greeting, OrderFor, Pool, Relay, read_relayed
from solera.deploy.server.added_sums import Added
from solera.deploy.server.round import Round

_WAIT = 0.8  # share of the server's own patience that an edge may spend on members that hang


@dataclass(frozen=True)
class Passed:
    """What an edge has passed on of one member."""

    member: int
    packet: Packet | None
    error: RefusalError | None = None


def is_greeting(packet: Packet) -> bool:
    """Whether the answer to an offer is an edge's."""
    return packet.fields.get("edge") is True


class Edges:
    """The edges that are connected, and the way to every member."""

    def __init__(self, home: Path, method: AnyMethod) -> None:
        self._home, self._method = home, method
        self._here: dict[int, set[int]] = {}  # members, by edge
        self._way: dict[int, int] = {}  # edge, by member
        self._keys: dict[int, bytes] = {}
        self._at = 0
        self._exchange: Exchange | None = None

    def greet(self, edge: int, packet: Packet, online: Collection[int]) -> None:
        """Take note of an edge and its members."""
        if not self._method.one_round and self._method.tailored:
            raise RefusalError(
                Reason.EDGE,
                f"{self._method.name!r} sends every user a table of its own, which an edge would see",
            )
        said = Greeting.of(packet)
        known = KnownKeys.read(self._home)
        if known is None:
            raise RefusalError(Reason.EDGE, "edges need a server with keys")
        self._keys = known.by_number()
        self._listen(edge, said.here, online)

    def spread(self, online: Collection[int]) -> set[int]:
        """Nodes that are online: members in place of their edges."""
        edges = {edge for edge in self._here if edge in online}
        return set(online) - edges | {member for member, edge in self._way.items() if edge in edges}

    def outgoing(
        self, kind: str, packets: Mapping[int, Packet], now: Round | None, seconds: float, wait: float
    ) -> dict[int, Packet]:
        """Packets by connection: those for members in one relay for each edge.

        The SuperLink does not know members, so it drops what is for one that is not there any more.
        """
        self._exchange = exchange = self._begin() if self._way.keys() & packets.keys() else None
        found = {node: packet for node, packet in packets.items() if node not in self._way}
        relays: dict[int, dict[int, Packet]] = {}
        for member, packet in packets.items():
            if member in self._way:
                relays.setdefault(self._way[member], {})[member] = packet
        for edge, orders in relays.items():
            assert exchange is not None
            adding = _adding(now, orders) if kind == "mask" and now is not None else []
            found[edge] = _relay(exchange, kind, orders, adding, seconds=seconds, wait=_WAIT * wait)
        return found

    def is_edge(self, node: int) -> bool:
        """Whether a connection is an edge's."""
        return node in self._here

    def incoming(self, edge: int, packet: Packet, online: Collection[int]) -> Iterator[Passed]:
        """What an edge's answer to a relay says, member by member."""
        said, boxes, sums = read_relayed(packet)
        exchange = self._exchange
        opened: dict[int, Packet] = {}
        for member, box in boxes.items():
            if exchange is None or self._way.get(member) != edge or not exchange.is_asked(member):
                raise RefusalError(
                    Reason.EDGE, f"an answer of {member}, which was not asked through this edge"
                )
            try:
                opened[member] = exchange.opened(member, self._keys[member], box)
            except RefusalError as error:
                yield Passed(member, None, error)
        in_sums = [member for members in said.sums for member in members]
        if len(set(in_sums)) != len(in_sums):
            raise RefusalError(Reason.EDGE, "a member is in two sums")
        together = {member: place for place, members in enumerate(said.sums) for member in members}
        for member, found in opened.items():
            place = together.get(member)
            if place is None:
                yield Passed(member, found)
            else:
                added = Added(found.fields, found.arrays, tuple(said.sums[place]), sums[place])
                yield Passed(member, added)
        self._listen(edge, said.here, online)

    def _listen(self, edge: int, members: list[int], online: Collection[int]) -> None:
        """Who is there by now. A member is reached by the first edge that names it, while it does."""
        for member in self._here.get(edge, ()):
            if self._way.get(member) == edge and member not in members:
                del self._way[member]
        self._here[edge] = {member for member in members if member in self._keys}
        for member in self._here[edge]:
            if self._way.get(member, edge) not in online:
                self._way[member] = edge
            self._way.setdefault(member, edge)

    def _begin(self) -> Exchange:
        known = KnownKeys.read(self._home)
        if known is None:
            raise DeployError(
                f"{self._home} does not name the server's keys", "start the server again with --keys"
            )
        self._keys = known.by_number()
        self._way = {member: edge for member, edge in self._way.items() if member in self._keys}
        self._at = max(self._at + 1, time.time_ns() // 1_000_000)
        return Exchange(*known.signer(), self._at)


def _relay(
    exchange: Exchange,
    kind: str,
    orders: Mapping[int, Packet],
    adding: list[Adding],
    *,
    seconds: float,
    wait: float,
) -> Packet:
    pool, made = Pool(), list[OrderFor]()
    for member, packet in orders.items():
        text = np.frombuffer(json.dumps(packet.fields).encode(), np.uint8)
        made.append(
            OrderFor(
                member=member,
                fields=pool.add(text),
                arrays={name: pool.add(values) for name, values in packet.arrays.items()},
                signature=exchange.order(kind, member, packet),
            )
        )
    relay = Relay(
        protocol=PROTOCOL,
        federation=str(next(iter(orders.values())).fields["federation"]),
        kind=kind,
        seconds=seconds,
        wait=wait,
        stamp=exchange.stamp,
        orders=made,
        adding=adding,
    )
    return Packet(relay.model_dump(mode="json"), pool.arrays)


def _adding(now: Round, members: Collection[int]) -> list[Adding]:
    """What an edge may add up: vectors of one group each."""
    groups: dict[int, list[int]] = {}
    for member in members:
        groups.setdefault(now.places[member], []).append(member)
    encodings = {place: now.encodings[place] for place in groups}
    return [
        Adding(bits=encodings[place].bits, bytes=encodings[place].nbytes, members=group)
        for place, group in groups.items()
    ]
