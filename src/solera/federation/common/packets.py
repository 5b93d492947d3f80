"""A packet as bytes: its fields as JSON, and its arrays one after the other, with names, types and shapes.

Arrays do not travel in numpy's own format: its reader believes what a file says of its size.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable
from typing import Any

import numpy as np

from solera.device.tensors import Arrays
from solera.federation.common.protocol import Packet, Reason, RefusalError

TYPES = ("<f4", "<f8", "<i4", "|u1")
_LENGTH = struct.Struct("<I")


def to_bytes(packet: Packet) -> bytes:
    """A packet as one text."""
    listed, data = pack_arrays(packet.arrays)
    return join_frames([json.dumps(packet.fields).encode(), listed.encode(), data])


def from_bytes(text: bytes) -> Packet:
    """Parse what `to_bytes` wrote, or a stranger."""
    try:
        fields, listed, data = split_frames(text)
        found = Packet(json.loads(fields), unpack_arrays(json.loads(listed), data))
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise RefusalError(Reason.MALFORMED, f"cannot be read: {error}"[:200]) from None
    if not isinstance(found.fields, dict):
        raise RefusalError(Reason.MALFORMED, "the fields are not a JSON object")
    return found


def pack_arrays(arrays: Arrays) -> tuple[str, bytes]:
    """Names, types and shapes as JSON, and the bytes of all arrays."""
    plain = {name: np.ascontiguousarray(values) for name, values in arrays.items()}
    listed = [[name, v.dtype.str, arrays[name].shape] for name, v in plain.items()]
    return json.dumps(listed), b"".join(values.tobytes() for values in plain.values())


def unpack_arrays(listed: Any, data: Any) -> Arrays:
    """The arrays again; a ValueError or TypeError if they do not fit their bytes."""
    if not isinstance(listed, list) or not isinstance(data, bytes):
        raise TypeError("no list of arrays, or no bytes")
    arrays: Arrays = {}
    at = 0
    for name, dtype, shape in listed:
        if not isinstance(name, str) or name in arrays or dtype not in TYPES:
            raise ValueError(f"an array {str(name)[:50]} of {str(dtype)[:50]}")
        if not isinstance(shape, list) or any(type(n) is not int or n < 0 for n in shape):
            raise ValueError("an array without a shape")
        end = at + math.prod(shape) * np.dtype(dtype).itemsize
        if end > len(data):
            raise ValueError("fewer bytes than the arrays have")
        arrays[name] = np.frombuffer(data[at:end], dtype).reshape(shape)
        at = end
    if at != len(data):
        raise ValueError("more bytes than the arrays have")
    return arrays


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
