"""Packets that are wrong, and their bytes."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
from mutations import array, bytes_of, json_of, structure

from solera.federation.common.packets import from_bytes, to_bytes
from solera.federation.common.protocol import MESSAGE, Packet
from solera.federation.common.wire import join_frames, split_frames


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


def odd_bytes(draw: random.Random, packet: Packet) -> bytes:
    """The same as it travels, and what may be wrong there: most often nothing."""
    whole = to_bytes(packet)
    fields, listed, data = split_frames(whole)
    match draw.randrange(16):
        case 0:
            fields = json_of(draw, fields)
        case 1:
            listed = json_of(draw, listed)
        case 2:
            data = bytes_of(draw, data)
        case 3:
            listed = json.dumps(
                [[draw.choice(("rows", 3, None)), draw.choice(_TYPES), draw.choice(_SHAPES)]]
            ).encode()
        case 4:
            return bytes_of(draw, whole)
        case 5:
            return join_frames([fields, listed, data, draw.choice((b"", b"x"))])
        case 6:
            return join_frames(draw.choice(([fields], [fields, listed], [listed, fields, data])))
        case _:
            pass
    return join_frames([fields, listed, data])


_SHAPES: tuple[Any, ...] = ([-1], [0], [0, 2**63], [10**12], [3, -1], [], [1] * 70, "3", [1.0], [True])
_TYPES = ("<f4", "<f8", "<i4", "|u1", "O", "<U9", "", "V8", "<M8", 4, None)


def received(draw: random.Random, good: Packet) -> Packet:
    """What arrives in place of a good packet, if it can be read at all."""
    return from_bytes(odd_bytes(draw, odd_packet(draw, good)))
