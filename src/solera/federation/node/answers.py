"""Answers of a node, from its device's folder; nothing here needs a transport."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from solera.core.errors import SoleraError
from solera.federation.common.protocol import Packet, declined

_LOG = logging.getLogger(__name__)

Answers = Callable[[str, Packet], Packet]  # the kind of a message and what it says; the reply


def answer(kind: str, packet: Packet, folder: Path) -> Packet:
    """Open the device in the folder, answer one message, and close the device again."""
    from solera.device.device import Device  # noqa: PLC0415
    from solera.federation.node.masked_round import open_node  # noqa: PLC0415 - torch, only where messages are answered

    try:
        device = Device.open(folder)
        try:
            return open_node(device).answer(kind, packet)
        finally:
            device.close()
    except SoleraError as error:  # its words may name files of this device, and no outbox can be written
        _LOG.warning("declined to %s: %s", kind, error)
        return declined("this node could not answer, nor record that it did not")


def answers_of(folder: Path) -> Answers:
    """Answers of the node whose device is in that folder."""
    return lambda kind, packet: answer(kind, packet, folder)
