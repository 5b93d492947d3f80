"""Packets that are wrong, and the same as Flower carries them."""

from __future__ import annotations

import json
import random
from typing import Any
from unittest import mock

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, RecordDict
from mutations import array, bytes_of, json_of, structure

from solera.deploy.common import messages
from solera.deploy.common.packets import from_bytes, to_bytes
from solera.deploy.common.protocol import MESSAGE, Packet


def odd_packet(draw: random.Random, good: Packet) -> Packet:
    """Fields or arrays that are wrong, or both."""
    fields, arrays = good.fields, dict(good.arrays)
    if draw.random() < 0.6:
        for _ in range(draw.choice((1, 1, 2))):
            changed = structure(draw, fields)
            fields = changed if isinstance(changed, dict) else {"odd": changed}
    if arrays and draw.random() < 0.6:
        name = draw.choice(list(arrays))
        if draw.random() < 0.2:
            arrays[draw.choice(("extra", "", name + "x"))] = arrays.pop(name)
        elif name == MESSAGE and draw.random() < 0.8:
            arrays[name] = np.frombuffer(bytes_of(draw, arrays[name].tobytes()), np.uint8)
        else:
            arrays[name] = array(draw, arrays[name])
    return Packet(fields, arrays)


def odd_record(draw: random.Random, packet: Packet) -> RecordDict:
    """The same as Flower carries it, and what may be wrong there."""
    content = to_content(packet)
    if draw.random() < 0.5:
        return _odd_texts(draw, content)
    with mock.patch.object(messages, "_SMALL", -1):  # as larger arrays travel
        return _odd_arrays(draw, packet, to_content(packet))


def _odd_texts(draw: random.Random, content: RecordDict) -> RecordDict:
    """Wrong texts or bytes of a record that holds everything."""
    texts: dict[str, Any] = dict(content["fields"])
    match draw.randrange(8):
        case 0 | 1:
            name = draw.choice(("fields", "arrays"))
            texts[name] = json_of(draw, str(texts[name]).encode()).decode("latin-1")
        case 2:
            texts["bytes"] = bytes_of(draw, texts["bytes"])
        case 3:
            shape = draw.choice(([-1], [0], [0, 2**63], [10**12], [3, -1], [], [1] * 70, "3", [1.0], [True]))
            dtype = draw.choice(("<f4", "<f8", "<i4", "|u1", "O", "<U9", "", "V8", "<M8", 4, None))
            texts["arrays"] = json.dumps([[draw.choice(("rows", 3, None)), dtype, shape]])
        case 4:
            texts[draw.choice(("more", "fields"))] = draw.choice((b"x", 1, "{}"))
        case _:
            pass
    content["fields"] = ConfigRecord(texts)
    return content


def _odd_arrays(draw: random.Random, packet: Packet, content: RecordDict) -> RecordDict:
    """Wrong arrays beside a record of fields."""
    match draw.randrange(8):
        case 0:
            content["fields"] = ConfigRecord(
                {"fields": json_of(draw, json.dumps(packet.fields).encode()).decode("latin-1")}
            )
        case 1:
            content["more"] = ConfigRecord({"x": 1})
        case 2 if packet.arrays:
            name = draw.choice(list(packet.arrays))
            made = content["arrays"][name]
            match draw.randrange(4):
                case 0:
                    made.data = bytes_of(draw, made.data)
                case 1:
                    made.dtype = draw.choice(("<f4", "<f8", "<i4", "O", "<U9", "", "V8", "<M8"))
                case 2:
                    made.shape = draw.choice(((-1,), (0,), (10**12,), (2**63,), (3, -1), (), tuple([1] * 70)))
                case _:
                    made.stype = draw.choice(("numpy.ndarray", "", "pickle"))
            content["arrays"] = ArrayRecord({**content["arrays"], name: made})
        case _:
            pass
    return content


def received(draw: random.Random, good: Packet) -> Packet:
    """What arrives in place of a good packet, if it can be read at all."""
    return from_content(odd_record(draw, odd_packet(draw, good)))
