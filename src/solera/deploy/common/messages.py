"""Conversion between packets and Flower's messages.

Arrays travel as their bytes, with type and shape beside them, and not in numpy's own format: its reader
believes what a file says of its size.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from numpy.typing import NDArray

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
}
_FIELDS, _ARRAYS = "fields", "arrays"
_STYLE, _TYPES = "solera.bytes", ("<f4", "<f8", "<i4", "|u1")


def to_content(packet: Packet) -> RecordDict:
    """Convert a packet to Flower's content: fields as one JSON text, arrays unchanged."""
    arrays = {name: _to_array(values) for name, values in packet.arrays.items()}
    fields = ConfigRecord({_FIELDS: json.dumps(packet.fields)})
    return RecordDict({_FIELDS: fields, _ARRAYS: ArrayRecord(arrays)})


def from_content(content: RecordDict) -> Packet:
    """Parse Flower's content, which may come from a stranger."""
    texts, numbers = content.get(_FIELDS), content.get(_ARRAYS)
    if len(content) != 2 or not isinstance(texts, ConfigRecord) or not isinstance(numbers, ArrayRecord):
        raise RefusalError(Reason.NAMES, f"not declared: records {', '.join(sorted(content))[:200]}")
    if set(texts) != {_FIELDS}:
        raise RefusalError(Reason.NAMES, "not declared: fields outside the one text that holds all fields")
    try:
        fields = json.loads(str(texts[_FIELDS]))
        arrays: Arrays = {name: _from_array(array) for name, array in numbers.items()}
    except (ValueError, TypeError, RecursionError) as error:
        raise RefusalError(Reason.MALFORMED, f"cannot be read: {error}"[:200]) from None
    if not isinstance(fields, dict):
        raise RefusalError(Reason.MALFORMED, "the fields are not a JSON object")
    return Packet(fields, arrays)


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
