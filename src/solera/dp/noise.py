"""Sources of noise and coins: a run's seed for research, the operating system for deployments."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from solera.core.errors import ConfigError
from solera.core.randomness import Purpose, generator
from solera.core.types import Floats
from solera.dp.discrete import discrete_gaussian

_ROWS = 512  # rows that get their noise at once
_DRIFT, _NUMBERS = 16, 1 << 27  # see SystemNoise


class Noise(Protocol):
    """Normal noise on sums, independent of everything before."""

    def cover(self, sums: Tensor, std: float, clip: float) -> Tensor:
        """Add noise of this standard deviation. One user changes the sums by at most `clip`, in L2."""
        ...

    def cover_symmetric(self, matrix: Tensor, std: float, clip: float) -> None:
        """Add symmetric noise to a symmetric matrix in place, with std/√2 off the diagonal."""
        ...


class SeededNoise:
    """Reproducible noise of one round, for simulations, where nothing is secret.

    It protects nothing from anyone who knows or guesses the seed.
    """

    def __init__(self, seed: int, round_: int) -> None:
        self._draw = generator(seed, Purpose.NOISE, round_)

    def normal(self, shape: Iterable[int]) -> Tensor:
        """The next draws of the stream, standard normal, in double precision."""
        return torch.from_numpy(self._draw.standard_normal(tuple(shape)))

    def cover(self, sums: Tensor, std: float, clip: float) -> Tensor:
        """Add floating-point noise."""
        return sums + self.normal(sums.shape).to(sums) * std

    def cover_symmetric(self, matrix: Tensor, std: float, clip: float) -> None:
        """Add symmetric floating-point noise, some rows at a time."""
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
    """Noise from the operating system's secure generator, for deployments: nobody can reproduce it.

    Sums are rounded to multiples of a step g, and discrete Gaussian noise in the same multiples is added, so
    their lowest bits reveal nothing. g is a power of two of about 2^-32 standard deviations. Rounding changes
    one user's part by less than 16 g in each of at most 2^27 numbers, including sums in doubles. The noise is
    enlarged accordingly, as if the clip were that much larger.
    """

    def cover(self, sums: Tensor, std: float, clip: float) -> Tensor:
        """Add discrete noise in doubles, which hold all multiples exactly."""
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
        """Add noise to the diagonal, then above it, and mirror the upper half."""
        matrix.diagonal().copy_(self.cover(matrix.diagonal(), std, clip))
        for start in range(0, len(matrix), _ROWS):
            rows = matrix[start : start + _ROWS, start:]
            above = torch.ones_like(rows, dtype=torch.bool).triu(1)
            beside = self.cover(rows[above], std / math.sqrt(2), clip).to(matrix)
            rows[above] = beside
            matrix.T[start : start + _ROWS, start:][above] = beside


class Randomness(Protocol):
    """All randomness of a private federation, by round."""

    def noise(self, round_: int) -> Noise:
        """The noise on a round's sums."""
        ...

    def coins(self, count: int, round_: int) -> Floats:
        """Uniform draws in [0, 1), one for each client that may take part in a round."""
        ...


@dataclass(frozen=True)
class Seeded:
    """Randomness of a reproducible run."""

    seed: int

    def noise(self, round_: int) -> Noise:
        """The same noise on every call."""
        return SeededNoise(self.seed, round_)

    def coins(self, count: int, round_: int) -> Floats:
        """The same coins on every call."""
        return generator(self.seed, Purpose.CLIENTS, round_).random(count)


@dataclass(frozen=True)
class System:
    """Randomness of a deployment. Nobody can predict or reproduce it."""

    def noise(self, round_: int) -> Noise:
        """New noise on every call."""
        return SystemNoise()

    def coins(self, count: int, round_: int) -> Floats:
        """New coins on every call."""
        return _uniform(count)


def _uniform(count: int) -> Floats:
    """Multiples of 2^-53 in [0, 1), from the operating system's secure generator."""
    bits = np.frombuffer(os.urandom(8 * count), np.uint64) >> np.uint64(11)
    return bits.astype(np.float64) * 2.0**-53
