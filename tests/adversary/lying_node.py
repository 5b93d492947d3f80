"""A node that gives a wrong share once there is a file `lie` in its folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from solera.federation.common.protocol import MESSAGE, Packet
from solera.federation.node.worker import Answers, answer


def answers_of(device: Path) -> Answers:
    def lie(kind: str, packet: Packet) -> Packet:
        reply = answer(kind, packet, device)
        if kind == "unmask" and (device / "lie").exists():
            data = reply.arrays[MESSAGE].copy()
            data[-3] ^= 1
            reply = replace(reply, arrays={MESSAGE: data})
        return reply

    return lie
