"""Random streams that depend only on (seed, purpose, round, client).

A client's draws must not change with the engine, the order of the clients or the blocking, and a device
must be able to reproduce them alone. So there is no stateful generator: draw number i of a stream is a
hash of the stream's key and i (SplitMix64, Steele et al. 2014), computed for many clients at once.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from solera.core.types import Floats, Ints

Bits = NDArray[np.uint64]  # 64 random bits each

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


class Purpose(IntEnum):
    """What a stream is used for. Two purposes never share draws. Values are part of every saved run."""

    INIT = 0
    CLIENTS = 1
    NEGATIVES = 2
    SHUFFLE = 3
    EVALUATION = 4
    NOISE = 5
    SYNTHETIC = 6
    CODING = 7
    DROPOUT = 8


def mix(x: Bits) -> Bits:
    """SplitMix64's finalizer: a bijection on 64 bits that maps nearby inputs to distant outputs."""
    x = x ^ (x >> np.uint64(30))
    x *= _MIX_1
    x ^= x >> np.uint64(27)
    x *= _MIX_2
    x ^= x >> np.uint64(31)
    return x


def generator(seed: int, purpose: Purpose, *path: int) -> np.random.Generator:
    """A NumPy generator for draws that do not belong to a client."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(int(purpose), *path)))


def client_keys(seed: int, purpose: Purpose, round_: int, clients: Ints) -> Bits:
    """The stream keys of the given clients."""
    source = np.random.SeedSequence(seed, spawn_key=(int(purpose), round_))
    base = source.generate_state(1, np.uint64)[0]
    with np.errstate(over="ignore"):
        return mix(base + mix((clients.astype(np.uint64) + np.uint64(1)) * _GOLDEN))


class Streams:
    """Streams of several clients. Each call of `next` gives the next `counts[c]` draws of every client c."""

    def __init__(self, keys: Bits, counts: Ints) -> None:
        ends = np.cumsum(counts)
        number = np.arange(1, (ends[-1] if len(ends) else 0) + 1) - np.repeat(ends - counts, counts)
        with np.errstate(over="ignore"):
            self._state = np.repeat(keys, counts) + number.astype(np.uint64) * _GOLDEN
            self._stride = counts.astype(np.uint64) * _GOLDEN
        self._counts = counts
        self._started = False

    def next(self) -> Bits:
        """The next draws of all clients, concatenated."""
        if self._started:
            self._state += np.repeat(self._stride, self._counts)
        self._started = True
        return mix(self._state)


def draws(keys: Bits, counts: Ints) -> Bits:
    """The first `counts[c]` draws of every stream, concatenated."""
    return Streams(keys, counts).next()


def uniform(bits: Bits) -> Floats:
    """Uniform numbers in [0, 1), computed from the upper 53 bits."""
    unit: Floats = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return unit


def below(bits: Bits, bounds: Ints) -> Ints:
    """Uniform integers in [0, bound)."""
    return (uniform(bits) * bounds).astype(np.int64)
