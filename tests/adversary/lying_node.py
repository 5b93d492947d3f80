"""A node that gives a wrong share once there is a file `lie` in its folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from solera.deploy.common.messages import TYPES, from_content, to_content
from solera.deploy.common.protocol import MESSAGE
from solera.deploy.node.app import make_app


def app_of(device: Path) -> ClientApp:
    def lie(message: Message, context: Context, call_next) -> Message:
        reply = call_next(message, context)
        if message.metadata.message_type == TYPES["unmask"] and (device / "lie").exists():
            packet = from_content(reply.content)
            data = packet.arrays[MESSAGE].copy()
            data[-3] ^= 1
            reply.content = to_content(replace(packet, arrays={MESSAGE: data}))
        return reply

    return make_app([lie], device_of=lambda context: device)
