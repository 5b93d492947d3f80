"""One round of sums over histories: a single Gaussian mechanism.

A user's contribution to all matrices together is clipped in Frobenius norm. A symmetric matrix is determined
by the numbers on and above the diagonal. With those above it times √2, they form a vector of the same norm as
the matrix. So noise of std σ on the diagonal and σ/√2 off it, mirrored, is the Gaussian mechanism on that
vector.

A noisy sum of x xᵀ has negative eigenvalues. Such noise on n rows moves eigenvalues by about σ √(2n), which
is known without looking at the data. This much is added to the diagonal, and doubled as long as it is not
enough.

Most pairs of items hardly ever occur, and their noisy numbers are noise alone. With a `threshold` c those
within c standard deviations of zero become zero. All of this only uses the noisy sum, and costs no privacy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from solera.core.closed_form import Channels, Contribution
from solera.core.errors import ConfigError
from solera.dp.mechanism import Clip, Gaussian
from solera.dp.noise import Randomness
from solera.dp.settings import DP

_ROWS = 512  # rows that get their noise at once


@dataclass(frozen=True)
class PrivateSum:
    """Clipped contributions and a noisy total. `dp` must be resolved."""

    dp: DP
    randomness: Randomness

    def __post_init__(self) -> None:
        if self.dp.noise is None:
            raise ConfigError("the amount of noise is not known yet", "pass the result of DP.resolved")
        if self.dp.adaptive is not None:
            raise ConfigError("an adaptive clip needs many rounds", "omit adaptive=…")

    @property
    def dense(self) -> bool:
        """Whether clients send whole matrices: noise that they add themselves covers every pair of items."""
        return self.dp.covers_uploads

    @property
    def gaussian(self) -> Gaussian:
        """The clip, and noise in proportion to it."""
        assert self.dp.noise is not None
        return Gaussian(Clip(self.dp.clip), self.dp.noise)

    def take(self, part: Contribution) -> Contribution:
        """A client's contribution, clipped."""
        return self.gaussian.clip.contribution(part)

    def std(self, clients: int) -> float:
        """Standard deviation of the noise on the total, which depends on who adds it; see `rounds`."""
        match self.dp.mode:
            case "central":
                return self.gaussian.std
            case "local":
                return self.gaussian.std * math.sqrt(clients)
            case "distributed":
                return self.gaussian.std / math.sqrt(1 - self.dp.dropout)

    def release(self, totals: Mapping[str, Tensor], channels: Mapping[str, Channels], clients: int) -> None:
        """Add noise to all totals in place, and remove what is hardly more than noise."""
        noise, std, clip = self.randomness.noise(0), self.std(clients), self.dp.clip
        least = (self.dp.threshold or 0.0) * std
        for name, total in totals.items():
            if channels[name].symmetric:
                noise.cover_symmetric(total, std, clip)
                diagonal = total.diagonal().clone()
                drop_small(total, least / math.sqrt(2))
                total.diagonal().copy_(diagonal)
                make_positive(total, std * math.sqrt(2 * len(total)))
            else:
                for start in range(0, len(total), _ROWS):
                    some = total[start : start + _ROWS]
                    some.copy_(noise.cover(some, std, clip))
                    if channels[name].width is None:
                        drop_small(some, least)


def drop_small(matrix: Tensor, least: float) -> None:
    """Replace numbers nearer to zero than `least` by zero, in place."""
    if least:
        matrix.masked_fill_(matrix.abs() < least, 0.0)


def make_positive(matrix: Tensor, step: float) -> None:
    """Add `step` to the diagonal, and double it until all eigenvalues are positive; in place."""
    matrix.diagonal().add_(step)
    while int(torch.linalg.cholesky_ex(matrix).info) > 0:
        matrix.diagonal().add_(step)
        step *= 2
