"""Where noise and coins come from: a run's seed, for research, or the operating system, for anything real."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from solera.core.randomness import Purpose, generator

SEEDED = "seeded: for research"  # whoever knows the seed can take the noise off again
SYSTEM = "operating system"
Floats = NDArray[np.float64]


class Noise(Protocol):
    """Standard normal numbers, as many as are asked for; independent of all that came before."""

    def normal(self, shape: Iterable[int]) -> Tensor:
        """In doubles."""
        ...


class SeededNoise:
    """Noise that can be made again, of one round: for simulations, which keep nothing secret from themselves.

    It covers nothing from anyone who knows or guesses the seed.
    """

    def __init__(self, seed: int, round_: int) -> None:
        self._draw = generator(seed, Purpose.NOISE, round_)

    def normal(self, shape: Iterable[int]) -> Tensor:
        """The next draws of the stream."""
        return torch.from_numpy(self._draw.standard_normal(tuple(shape)))


@dataclass(frozen=True)
class SystemNoise:
    """Noise from the operating system's secure generator, for deployments: nobody can make it again.

    Box and Muller's transform of uniform numbers of 53 bits. They are floating-point numbers all the same:
    what their lowest bits give away (Mironov, CCS 2012) is not covered.
    """

    def normal(self, shape: Iterable[int]) -> Tensor:
        """√(−2 ln u) · cos and sin of 2πv, u in (0, 1]."""
        size = tuple(shape)
        half = (math.prod(size) + 1) // 2
        u, v = (1 - _uniform(2 * half)).reshape(2, half)
        length, angle = np.sqrt(-2 * np.log(u)), 2 * math.pi * v
        both = np.concatenate([length * np.cos(angle), length * np.sin(angle)])
        return torch.from_numpy(both[: math.prod(size)].reshape(size))


class Randomness(Protocol):
    """All that a private federation draws, round by round."""

    def noise(self, round_: int) -> Noise:
        """That on a round's sums."""
        ...

    def coins(self, count: int, round_: int) -> Floats:
        """Uniform in [0, 1): one for each who may take part in a round."""
        ...


@dataclass(frozen=True)
class Seeded:
    """Of a run that can be repeated."""

    seed: int

    def noise(self, round_: int) -> Noise:
        """The same whenever asked."""
        return SeededNoise(self.seed, round_)

    def coins(self, count: int, round_: int) -> Floats:
        """The same whenever asked."""
        return generator(self.seed, Purpose.CLIENTS, round_).random(count)


@dataclass(frozen=True)
class System:
    """Of a deployment: nobody knows it before, nobody can make it again."""

    def noise(self, round_: int) -> Noise:
        """New ones whenever asked."""
        return SystemNoise()

    def coins(self, count: int, round_: int) -> Floats:
        """New ones whenever asked."""
        return _uniform(count)


def _uniform(count: int) -> Floats:
    """Multiples of 2^-53 in [0, 1), from the operating system's secure generator."""
    bits = np.frombuffer(os.urandom(8 * count), np.uint64) >> np.uint64(11)
    return bits.astype(np.float64) * 2.0**-53
