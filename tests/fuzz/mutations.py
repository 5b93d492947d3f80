"""Things to be wrong with what a stranger sends, drawn from a seed, and who tries them."""

from __future__ import annotations

import itertools
import json
import random
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from solera.core.errors import SoleraError

ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, -(2**63), 2**64, 10**30, 0.5, -0.0, 1e308, float("inf"), float("nan"),
    "", "0", "é" * 50, "x" * 10_000, "\x00", "../../etc/passwd", "1e999", [], [[]], [0] * 1000, [-1], {},
)  # fmt: skip
_SECONDS = 5.0  # of processor time that one input may take
_GROWTH = 300 << 20  # bytes that all of them together may add
TYPES = ("<f4", "<f8", "<i4", "<i8", "|u1", "|b1", "<c16", "<U5")


def fuzz(count: int, attempt: Callable[[random.Random], int | None]) -> tuple[int, int]:
    """How many attempts were taken, and how many refused; anything else is an error that names its seed.

    An attempt that tries several inputs says how many.
    """
    taken = refused = tried = 0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    for seed in itertools.count():
        if tried >= count:
            break
        began, inputs = time.process_time(), 1
        try:
            inputs = attempt(random.Random(seed)) or 1
            taken += 1
        except SoleraError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
        tried += inputs
        assert time.process_time() - began < _SECONDS, f"seed {seed}"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before < _GROWTH
    return taken, refused


def bytes_of(draw: random.Random, good: bytes) -> bytes:
    """A file with some bytes changed, cut off, moved, repeated, or nothing like it."""
    data = bytearray(good)
    for _ in range(draw.choice((1, 1, 1, 2, 5, 20))):
        at = draw.randrange(len(data) + 1)
        match draw.randrange(7):
            case 0:
                if data:
                    data[at % len(data)] ^= 1 << draw.randrange(8)
            case 1:
                del data[at:]
            case 2:
                data[at:at] = draw.randbytes(draw.randrange(40))
            case 3:
                data[at:at] = data[at : at + draw.randrange(200)]
            case 4:
                del data[at : at + draw.randrange(200)]
            case 5:
                data[at:at] = draw.choice(
                    (b"\x00", b"\n", b",", b'"', b"\xff\xfe", b"9" * 400, b"{", b"[" * 50)
                )
            case _:
                digits = [i for i, byte in enumerate(data[:4000]) if 48 <= byte < 58]
                if digits:
                    data[draw.choice(digits)] = draw.choice(b"0123456789-.eE")
    return bytes(data)


def structure(draw: random.Random, value: Any) -> Any:
    """A JSON value with one thing in it replaced, removed, doubled or added."""
    if isinstance(value, dict) and value and draw.random() < 0.85:
        changed = dict(value)
        name = draw.choice(list(changed))
        match draw.randrange(4):
            case 0:
                del changed[name]
            case 1:
                changed[draw.choice(("extra", "", name + " ", "é"))] = draw.choice(ODD)
            case _:
                changed[name] = structure(draw, changed[name])
        return changed
    if isinstance(value, list) and value and draw.random() < 0.7:
        changed_list = list(value)
        at = draw.randrange(len(changed_list))
        match draw.randrange(4):
            case 0:
                del changed_list[at]
            case 1:
                changed_list.insert(at, changed_list[at])
            case 2:
                changed_list = changed_list * 3
            case _:
                changed_list[at] = structure(draw, changed_list[at])
        return changed_list
    return near(draw, value) if draw.random() < 0.4 else draw.choice(ODD)


def near(draw: random.Random, value: Any) -> Any:
    """Another value of the same type, which may well be allowed."""
    if isinstance(value, str) and value:
        at = draw.randrange(len(value))
        return value[:at] + draw.choice("0123456789abcdef=+/ ") + value[at + 1 :]
    if isinstance(value, int):
        return draw.choice((value + 1, value - 1, 2 * value, 0, 1, 2, 1000, 2**31 - 1))
    if isinstance(value, float):
        return draw.choice((value * 2, value / 2, 5e-324, 1e-200, 1e-9, 1.0, 1e9, 1e200, 1.7e308))
    return draw.choice((None, 1, 1.0, 1e-200, 1e200, ""))


def json_of(draw: random.Random, good: bytes) -> bytes:
    """A JSON file with a wrong value in it, or no JSON at all."""
    if draw.random() < 0.3:
        return bytes_of(draw, good)
    return json.dumps(structure(draw, json.loads(good))).encode()


def array(draw: random.Random, values: np.ndarray) -> np.ndarray:
    """An array of another shape, type or content."""
    odd = (0, -1, 2**31 - 1, 1e30, 1e300, np.nan, np.inf, -np.inf)
    shapes = ((), (0,), (1, 1), (3, 0, 2), (2000,))
    flat = values.copy().reshape(-1)
    with np.errstate(all="ignore"):
        one = flat.astype("<f8")
        if one.size:
            one[draw.randrange(one.size)] = draw.choice(odd)
        changed = (
            values.astype(draw.choice(TYPES)),
            values[..., None],
            flat[: draw.randrange(flat.size + 1)],
            np.concatenate([flat, flat]),
            (values.astype("<f8") * draw.choice(odd)).astype(values.dtype),
            one.astype(values.dtype).reshape(values.shape),
            np.zeros(draw.choice(shapes), draw.choice(TYPES[:4])),
        )
    return draw.choice(changed)
