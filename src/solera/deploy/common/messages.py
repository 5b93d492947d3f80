"""Conversion between packets and Flower's messages.

Arrays travel as their bytes, with type and shape beside them, and not in numpy's own format: its reader
believes what a file says of its size.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from numpy.typing import NDArray

from solera.deploy.common.frames import join_frames, split_frames
from solera.deploy.common.protocol import Packet, Reason, RefusalError
from solera.device.tensors import Arrays

TYPES = {
    "enrol": "query.enrol",
    "train": "train.round",
    "finish": "query.finish",
    "evaluate": "query.evaluate",
    "advertise": "query.advertise",
    "share": "query.share",
    "mask": "train.masked",
    "confirm": "query.confirm",
    "unmask": "query.unmask",
    "relay": "query.relay",  # to an edge alone: see relays.py
}
KINDS = {type_: kind for kind, type_ in TYPES.items()}
_FIELDS, _ARRAYS, _BYTES = "fields", "arrays", "bytes"
_STYLE, _TYPES = "solera.bytes", ("<f4", "<f8", "<i4", "|u1")
_SMALL = 4 << 20  # bytes of arrays that travel in one piece; Flower cuts larger ones into pieces of 5 MiB


def to_content(packet: Packet) -> RecordDict:
    """Convert a packet to Flower's content: fields as one JSON text, arrays unchanged.

    Flower fetches every record, array and piece of an array by a request of its own. So small arrays travel
    as the bytes of one record, beside the fields.
    """
    fields = {_FIELDS: json.dumps(packet.fields)}
    if packet.bytes > _SMALL:
        arrays = {name: _to_array(values) for name, values in packet.arrays.items()}
        return RecordDict({_FIELDS: ConfigRecord({**fields}), _ARRAYS: ArrayRecord(arrays)})
    listed, data = _packed(packet.arrays)
    return RecordDict({_FIELDS: ConfigRecord({**fields, _ARRAYS: listed, _BYTES: data})})


def from_content(content: RecordDict) -> Packet:
    """Parse Flower's content, which may come from a stranger."""
    texts, numbers = content.get(_FIELDS), content.get(_ARRAYS, ArrayRecord())
    if (
        not set(content) <= {_FIELDS, _ARRAYS}
        or not isinstance(texts, ConfigRecord)
        or not isinstance(numbers, ArrayRecord)
    ):
        raise RefusalError(Reason.NAMES, f"not declared: records {', '.join(sorted(content))[:200]}")
    packed = _ARRAYS not in content
    if set(texts) != ({_FIELDS, _ARRAYS, _BYTES} if packed else {_FIELDS}):
        raise RefusalError(Reason.NAMES, "not declared: fields outside the one text that holds all fields")
    try:
        fields = json.loads(str(texts[_FIELDS]))
        arrays: Arrays = (
            _unpacked(json.loads(str(texts[_ARRAYS])), texts[_BYTES])
            if packed
            else {name: _from_array(array) for name, array in numbers.items()}
        )
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise RefusalError(Reason.MALFORMED, f"cannot be read: {error}"[:200]) from None
    if not isinstance(fields, dict):
        raise RefusalError(Reason.MALFORMED, "the fields are not a JSON object")
    return Packet(fields, arrays)


def to_bytes(packet: Packet) -> bytes:
    """A packet as one text, for a box that nobody opens on its way."""
    listed, data = _packed(packet.arrays)
    return join_frames([json.dumps(packet.fields).encode(), listed.encode(), data])


def from_bytes(text: bytes) -> Packet:
    """Parse what `to_bytes` wrote, or a stranger."""
    try:
        fields, listed, data = split_frames(text)
        found = Packet(json.loads(fields), _unpacked(json.loads(listed), data))
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise RefusalError(Reason.MALFORMED, f"cannot be read: {error}"[:200]) from None
    if not isinstance(found.fields, dict):
        raise RefusalError(Reason.MALFORMED, "the fields are not a JSON object")
    return found


def _packed(arrays: Arrays) -> tuple[str, bytes]:
    """Names, types and shapes as JSON, and the bytes of all arrays one after the other."""
    plain = {name: np.ascontiguousarray(values) for name, values in arrays.items()}
    listed = [[name, v.dtype.str, arrays[name].shape] for name, v in plain.items()]
    return json.dumps(listed), b"".join(values.tobytes() for values in plain.values())


def _unpacked(listed: Any, data: Any) -> Arrays:
    """Arrays that travelled as bytes, one after the other."""
    if not isinstance(listed, list) or not isinstance(data, bytes):
        raise TypeError("no list of arrays, or no bytes")
    arrays: Arrays = {}
    at = 0
    for name, dtype, shape in listed:
        if not isinstance(name, str) or name in arrays or dtype not in _TYPES:
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


def _to_array(values: NDArray[Any]) -> Array:
    plain = np.ascontiguousarray(values).reshape(values.shape)
    return Array(plain.dtype.str, plain.shape, _STYLE, plain.tobytes())


def _from_array(array: Array) -> NDArray[Any]:
    if array.stype != _STYLE or array.dtype not in _TYPES:
        raise ValueError(f"an array of {array.stype[:50]} and {array.dtype[:50]}")
    return np.frombuffer(array.data, array.dtype).reshape(array.shape)  # an error if sizes do not agree


def to_message(node: int, kind: str, packet: Packet, *, ttl: float, group: str) -> Message:
    """For a node to answer."""
    return Message(to_content(packet), node, TYPES[kind], ttl=ttl, group_id=group)
