"""The requests of a device, as both sides know them.

    POST /v1/check-in        I am here: answered with a task, or with when to come back
    GET  /v1/blob/SHA256     what many devices are sent; immutable, needs no signature
    POST /v1/answer/TASK     an upload, or a step of a masked round
    POST /v1/admit           the code of an invitation and the key that this device has made

Bodies are JSON, but for a task and its answer, which are packets: see packets.py.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic import Field

from solera.core.frozen import Frozen
from solera.federation.common.packets import join_frames, split_frames

CHECK_IN, ANSWER, BLOB, ADMIT, HEALTH = "/v1/check-in", "/v1/answer/", "/v1/blob/", "/v1/admit", "/health"
PACKET = "application/octet-stream"
LARGEST = 272 << 20  # bytes of an answer: 2^26 masked numbers of 32 bits, and more
SMALL = 64 << 10  # bytes of any other body


class CheckIn(Frozen):
    """What a device says."""

    session: str = Field(pattern="^[0-9a-f]{32}$", description="of the process that speaks for the device")
    wait: float = Field(default=0, ge=0, le=60, allow_inf_nan=False, description="seconds it would wait")
    leaving: bool = False


def pack_task(head: dict[str, Any], body: bytes) -> bytes:
    """A task for its device."""
    return join_frames([json.dumps(head).encode(), body])


def unpack_task(content: bytes) -> tuple[dict[str, Any], bytes]:
    """The same again; a ValueError if it is not whole."""
    head, body = split_frames(content)
    return json.loads(head), body
