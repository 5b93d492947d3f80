"""The requests of a device, as both sides know them.

    POST /v1/check-in        I am here: answered with a task, or with when to come back
    GET  /v1/blob/SHA256     what many devices are sent; immutable, needs no signature
    POST /v1/answer/TASK     an upload, or a step of a masked round
    POST /v1/admit           the code of an invitation and the key that this device has made

Bodies are JSON, but for a task and its answer, which are packets: see packets.py.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from typing import Any

CHECK_IN, ANSWER, BLOB, ADMIT, HEALTH = "/v1/check-in", "/v1/answer/", "/v1/blob/", "/v1/admit", "/health"
PACKET = "application/octet-stream"
LARGEST = 272 << 20  # bytes of an answer: 2^26 masked numbers of 32 bits, and more
SMALL = 64 << 10  # bytes of any other body
_LENGTH = struct.Struct("<I")


def pack_task(head: dict[str, Any], body: bytes) -> bytes:
    """A task for its device."""
    return join_frames([json.dumps(head).encode(), body])


def unpack_task(content: bytes) -> tuple[dict[str, Any], bytes]:
    """The same again; a ValueError if it is not whole."""
    head, body = split_frames(content)
    return json.loads(head), body


def join_frames(frames: Iterable[bytes]) -> bytes:
    """Several texts in one: each after its length."""
    return b"".join(part for frame in frames for part in (_LENGTH.pack(len(frame)), frame))


def split_frames(text: bytes) -> list[bytes]:
    """The texts again; a ValueError if they are not whole."""
    found, at = [], 0
    while at < len(text):
        if at + _LENGTH.size > len(text):
            raise ValueError("a length is cut off")
        (length,) = _LENGTH.unpack_from(text, at)
        at += _LENGTH.size
        if at + length > len(text):
            raise ValueError("a text is cut off")
        found.append(text[at : at + length])
        at += length
    return found
