"""A node behind an edge: it answers orders that its server has signed, and seals what it answers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

from solera.core.files import PRIVATE, write_atomically
from solera.deploy.common.authority import read_certificate
from solera.deploy.common.envelopes import Seals
from solera.deploy.common.protocol import MESSAGE, PROTOCOL, Packet, Reason, RefusalError
from solera.deploy.common.relays import BOX, VECTOR, from_envelope
from solera.deploy.node.line import read_key
from solera.privacy.secagg.messages import split_vector

Answers = Callable[[str, Packet], Packet | None]  # None for an answer that failed
_AT = "last_order"  # in the device's folder for Flower: when the last order was sent


class BehindEdge:
    """Opens envelopes with orders, and seals answers. Orders that are older than the last one are refused."""

    def __init__(self, key: Path, server_ca: Path, home: Path) -> None:
        self._seals = Seals(read_key(key), read_certificate(server_ca))
        self._path, self._last = home / _AT, 0
        with suppress(OSError, ValueError):
            self._last = int(self._path.read_text(encoding="ascii"))

    def answer(self, answers: Answers, kind: str, packet: Packet) -> Packet | None:
        """The sealed answer to an order; an error if the order is not the server's."""
        stamp, signature, order = from_envelope(packet)
        request = self._seals.check(stamp, signature, kind, order)
        if stamp.at <= self._last:
            raise RefusalError(Reason.EDGE, "the order is not newer than the last one that came")
        write_atomically(self._path, str(stamp.at), PRIVATE)
        self._last = stamp.at
        reply = answers(kind, order)
        if reply is None:
            return None
        arrays = {}
        if kind == "mask" and MESSAGE in reply.arrays:  # the edge may add the vector to others'
            head, vector = split_vector(reply.arrays[MESSAGE].tobytes())
            reply = Packet(reply.fields, {MESSAGE: np.frombuffer(head, np.uint8)})
            arrays[VECTOR] = np.frombuffer(vector, np.uint8)
        arrays[BOX] = np.frombuffer(self._seals.sealed(stamp, request, reply), np.uint8)
        return Packet({"protocol": PROTOCOL}, arrays)
