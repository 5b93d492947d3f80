"""One round of sums over histories: a Gaussian mechanism, once.

A user's contribution to all matrices together is clipped in Frobenius norm. Of a symmetric matrix the
numbers on and above the diagonal say everything; with those above it times √2 they are a vector as long as
the matrix, so noise of std σ on the diagonal and σ/√2 beside it, mirrored, is the Gaussian mechanism on
that vector.

A noisy sum of x xᵀ has negative eigenvalues. Such noise of n rows moves eigenvalues by about σ √(2n), which
is known without a look at the data; so much is added to the diagonal, and twice as much again for as long
as that was not enough. All of this is made of the noisy sum alone, and costs no privacy.
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

_ROWS = 512  # that get their noise at once


@dataclass(frozen=True)
class PrivateSum:
    """Clipped contributions, and a total under noise. `dp` is resolved."""

    dp: DP
    randomness: Randomness

    def __post_init__(self) -> None:
        if self.dp.noise is None:
            raise ConfigError("the amount of noise is not known yet", "pass the result of DP.resolved")
        if self.dp.adaptive is not None:
            raise ConfigError("an adaptive clip needs many rounds", "omit adaptive=…")

    @property
    def dense(self) -> bool:
        """Where clients add noise themselves, it covers every pair of items."""
        return self.dp.covers_uploads

    @property
    def gaussian(self) -> Gaussian:
        """The clip, and noise in proportion to it."""
        assert self.dp.noise is not None
        return Gaussian(Clip(self.dp.clip), self.dp.noise)

    def take(self, part: Contribution) -> Contribution:
        """What a client sends, clipped."""
        return self.gaussian.clip.contribution(part)

    def std(self, clients: int) -> float:
        """Of the noise on the total, by who adds it; see `rounds`."""
        match self.dp.mode:
            case "central":
                return self.gaussian.std
            case "local":
                return self.gaussian.std * math.sqrt(clients)
            case "distributed":
                return self.gaussian.std / math.sqrt(1 - self.dp.dropout)

    def release(self, totals: Mapping[str, Tensor], channels: Mapping[str, Channels], clients: int) -> None:
        """Cover all totals in place."""
        noise, std, clip = self.randomness.noise(0), self.std(clients), self.dp.clip
        for name, total in totals.items():
            if channels[name].symmetric:
                noise.cover_symmetric(total, std, clip)
                make_positive(total, std * math.sqrt(2 * len(total)))
            else:
                for start in range(0, len(total), _ROWS):
                    some = total[start : start + _ROWS]
                    some.copy_(noise.cover(some, std, clip))


def make_positive(matrix: Tensor, step: float) -> None:
    """Add `step` to the diagonal, and double it until all eigenvalues are above zero; in place."""
    matrix.diagonal().add_(step)
    while int(torch.linalg.cholesky_ex(matrix).info) > 0:
        matrix.diagonal().add_(step)
        step *= 2
