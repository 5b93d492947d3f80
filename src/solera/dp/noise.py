"""Where noise and coins come from: a run's seed, for research, or the operating system, for anything real."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from solera.core.arrays import Floats
from solera.core.errors import ConfigError
from solera.core.randomness import Purpose, generator
from solera.dp.discrete import discrete_gaussian

SEEDED = "seeded: for research"  # whoever knows the seed can take the noise off again
SYSTEM = "operating system"
_ROWS = 512  # that get their noise at once
_DRIFT, _NUMBERS = 16, 1 << 27  # see SystemNoise


class Noise(Protocol):
    """Normal noise on sums, independent of all that came before."""

    def cover(self, sums: Tensor, std: float, clip: float) -> Tensor:
        """The sums with noise of that standard deviation; one user moves them by `clip` at most, in L2."""
        ...

    def cover_symmetric(self, matrix: Tensor, std: float, clip: float) -> None:
        """The same on a symmetric matrix that stays symmetric, in place; beside the diagonal, std/√2."""
        ...


class SeededNoise:
    """Noise that can be made again, of one round: for simulations, which keep nothing secret from themselves.

    It covers nothing from anyone who knows or guesses the seed.
    """

    def __init__(self, seed: int, round_: int) -> None:
        self._draw = generator(seed, Purpose.NOISE, round_)

    def normal(self, shape: Iterable[int]) -> Tensor:
        """The next draws of the stream, standard normal, in doubles."""
        return torch.from_numpy(self._draw.standard_normal(tuple(shape)))

    def cover(self, sums: Tensor, std: float, clip: float) -> Tensor:
        """In floating-point numbers."""
        return sums + self.normal(sums.shape).to(sums) * std

    def cover_symmetric(self, matrix: Tensor, std: float, clip: float) -> None:
        """Some rows at a time."""
        n = len(matrix)
        for start in range(0, n, _ROWS):
            end = min(n, start + _ROWS)
            square = self.normal((end - start, end - start)).to(matrix)
            matrix[start:end, start:end].add_((square + square.T) / 2, alpha=std)
            beside = self.normal((end - start, n - end)).to(matrix) * (std / math.sqrt(2))
            matrix[start:end, end:].add_(beside)
            matrix[end:, start:end].add_(beside.T)


@dataclass(frozen=True)
class SystemNoise:
    """Noise from the operating system's secure generator, for deployments: nobody can make it again.

    Sums are rounded to multiples of a step g, and get discrete Gaussian noise of the same multiples: their
    lowest bits give nothing away. g is a power of two of about 2^-32 standard deviations. Rounding moves one
    user's part by less than 16 g in each of at most 2^27 numbers, sums in doubles included; the noise is made
    that much larger, as if the clip were.
    """

    def cover(self, sums: Tensor, std: float, clip: float) -> Tensor:
        """In doubles, which hold all multiples exactly."""
        step = math.ldexp(1.0, math.frexp(std)[1] - 32)
        sigma = math.ceil(std * (1 + _DRIFT * math.sqrt(_NUMBERS) * step / clip) / step)
        whole = (sums.double() / step).round()
        if not bool((whole.abs() < 2.0**52).all()):
            raise ConfigError(
                "a sum is too large to add this noise exactly", "raise the noise, or use fewer users"
            )
        drawn = torch.from_numpy(discrete_gaussian(sigma, sums.numel())).view(sums.shape)
        return (whole + drawn.to(whole)) * step

    def cover_symmetric(self, matrix: Tensor, std: float, clip: float) -> None:
        """The diagonal, then what is above it, mirrored."""
        matrix.diagonal().copy_(self.cover(matrix.diagonal(), std, clip))
        for start in range(0, len(matrix), _ROWS):
            rows = matrix[start : start + _ROWS, start:]
            above = torch.ones_like(rows, dtype=torch.bool).triu(1)
            beside = self.cover(rows[above], std / math.sqrt(2), clip).to(matrix)
            rows[above] = beside
            matrix.T[start : start + _ROWS, start:][above] = beside


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
