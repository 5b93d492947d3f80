"""Packets as Flower's messages."""

from __future__ import annotations

import json

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from solera.deploy.protocol import Packet, Reason, RefusalError
from solera.device.tensors import Arrays

TYPES = {"enrol": "query.enrol", "train": "train.round", "finish": "query.finish"}
_FIELDS, _ARRAYS = "fields", "arrays"


def to_content(packet: Packet) -> RecordDict:
    """Fields as one text, arrays as they are."""
    arrays = {name: Array(np.ascontiguousarray(values)) for name, values in packet.arrays.items()}
    fields = ConfigRecord({_FIELDS: json.dumps(packet.fields)})
    return RecordDict({_FIELDS: fields, _ARRAYS: ArrayRecord(arrays)})


def from_content(content: RecordDict) -> Packet:
    """The reverse, of what a stranger may have made."""
    texts, numbers = content.get(_FIELDS), content.get(_ARRAYS)
    if len(content) != 2 or not isinstance(texts, ConfigRecord) or not isinstance(numbers, ArrayRecord):
        raise RefusalError(Reason.NAMES, f"not declared: records {', '.join(sorted(content))[:200]}")
    if set(texts) != {_FIELDS}:
        raise RefusalError(Reason.NAMES, "not declared: fields outside of the one text that has them all")
    try:
        fields = json.loads(str(texts[_FIELDS]))
        arrays: Arrays = {name: array.numpy() for name, array in numbers.items()}
    except (ValueError, TypeError, EOFError, RecursionError, OSError) as error:
        raise RefusalError(Reason.MALFORMED, f"cannot be read: {error}"[:200]) from None
    if not isinstance(fields, dict):
        raise RefusalError(Reason.MALFORMED, "the fields are no object")
    return Packet(fields, arrays)


def to_message(node: int, kind: str, packet: Packet, *, ttl: float, group: str) -> Message:
    """For a node to answer."""
    return Message(to_content(packet), node, TYPES[kind], ttl=ttl, group_id=group)
