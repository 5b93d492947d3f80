"""Many rounds: Poisson sampling of clients, clipped uploads, and noise on their sum before any use.

    central       the server adds noise of std z · clip to the sum
    local         every client adds that much to its own upload; c of them add up to √c times as much
    distributed   every client adds 1/√k of it, where k is the least number of clients whose sum may be
                  opened: secure aggregation shows the sum alone, which then has at least the central noise.
                  k is (1 − dropout) of the expected clients; a round that fewer reach is given up

The noise of local and distributed clients is drawn here as one sum, which has the same distribution.

Adaptive clip (Andrew et al., NeurIPS 2021). Clients also report whether their upload was shorter than the
clip C; of the noisy share b of those, C ← C · exp(−0.2 · (b − quantile)). Their count, taken as ±½, has
sensitivity ½ and noise of std σ_b = (expected clients) / 20. Both together are one Gaussian mechanism of
multiplier z if the uploads get z_Δ = (z⁻² − (2σ_b)⁻²)^(−½), so their total privacy cost is that of z.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from solera.core.errors import ConfigError
from solera.core.leaf import Leaf, Params
from solera.core.protection import RoundStep, Step
from solera.core.types import Ints
from solera.core.upload import Sums, Totals, Upload
from solera.dp.mechanism import Clip, Gaussian
from solera.dp.noise import Noise, Randomness
from solera.dp.settings import DP

CLIP = "dp.clip"  # state of an adaptive clip on the server
_STEP = 0.2  # learning rate of an adaptive clip
_ROUNDING = 1 + 1e-9  # of doubles: a sum of clipped uploads may seem longer by this factor
_COUNT_NOISE = 1 / 20  # σ_b, as a fraction of the expected clients


@dataclass(frozen=True)
class PrivateRounds(Step):
    """A run's rounds: each of `users` takes part with probability `rate`. `dp` must be resolved."""

    dp: DP
    rate: float
    users: int
    randomness: Randomness

    def __post_init__(self) -> None:
        if self.dp.noise is None:
            raise ConfigError("the amount of noise is not known yet", "pass the result of DP.resolved")
        if self.dp.threshold is not None:
            raise ConfigError("a threshold is for methods of one round", "omit threshold=…")
        if self.dp.adaptive is not None and 2 * self.count_noise <= self.dp.noise:
            raise ConfigError(
                f"{self.expected:.0f} clients per round are too few for an adaptive clip with this noise",
                "omit adaptive=…, or raise -o clients_per_round=…",
            )

    @property
    def dense(self) -> bool:
        """Whether clients send whole tables: if they add noise themselves, it covers every row."""
        return self.dp.covers_uploads

    @property
    def expected(self) -> float:
        """Expected clients per round, q · n, by which sums are divided."""
        return self.rate * self.users

    @property
    def least(self) -> int:
        """The number of clients below which a distributed sum is not opened."""
        return max(1, math.floor((1 - self.dp.dropout) * self.expected))

    @property
    def count_noise(self) -> float:
        """σ_b, the standard deviation of the noise on the count."""
        return self.expected * _COUNT_NOISE

    @property
    def multiplier(self) -> float:
        """z, or z_Δ with an adaptive clip."""
        assert self.dp.noise is not None
        if self.dp.adaptive is None:
            return self.dp.noise
        rest: float = (self.dp.noise**-2 - (2 * self.count_noise) ** -2) ** -0.5
        return rest

    def choose(self, able: Ints, round_: int) -> Ints:
        """Draw each client independently with probability `rate`. The result may be empty."""
        return able[self.randomness.coins(len(able), round_) < self.rate]

    def memory(self) -> Params:
        if self.dp.adaptive is None:
            return {}
        return {CLIP: torch.tensor(self.dp.clip, dtype=torch.float64)}

    def begin(self, round_: int, leaves: tuple[Leaf, ...], memory: Params) -> PrivateRound:
        clip = Clip(float(memory[CLIP])) if self.dp.adaptive is not None else Clip(self.dp.clip)
        gaussian = Gaussian(clip, self.multiplier)
        return PrivateRound(self, leaves, gaussian, self.randomness.noise(round_))


class PrivateRound(RoundStep):
    """Clipping and noise in one round."""

    def __init__(
        self, rounds: PrivateRounds, leaves: tuple[Leaf, ...], gaussian: Gaussian, noise: Noise
    ) -> None:
        self._rounds, self._leaves, self._gaussian, self._noise = rounds, leaves, gaussian, noise
        self.clients, self._short = 0, 0

    def send(self, clients: Ints, upload: Upload) -> Upload:
        """The clients' uploads, clipped."""
        clipped, lengths = self._gaussian.clip.upload(upload, self._leaves)
        self.clients += upload.n_clients
        self._short += int((lengths <= self._gaussian.clip.norm).sum())
        return clipped

    def take_sums(self, sums: Sums) -> Sums:
        """Check that a sum over several clients is not longer than clipping allows."""
        if self._rounds.dp.adaptive is not None:
            raise ConfigError(
                "an adaptive clip needs the lengths of single uploads, which a sum does not show",
                "omit adaptive=…",
            )
        length, most = sums.length, self._gaussian.clip.norm * sums.weight
        if not length <= most * _ROUNDING:
            raise ConfigError(
                f"the sum over {sums.weight:g} clients has norm {length:.3g}; with clipping it is "
                f"at most {most:.3g}",
                "clip every client's upload before adding it to the sum",
            )
        self.clients += round(sums.weight)
        return sums

    @property
    def counts_alike(self) -> bool:
        """True, because a client's weight is data, too."""
        return True

    @property
    def std(self) -> float:
        """Standard deviation of the noise on every number of the sum."""
        match self._rounds.dp.mode:
            case "central":
                return self._gaussian.std
            case "local":
                return self._gaussian.std * math.sqrt(self.clients)
            case "distributed":
                return self._gaussian.std * math.sqrt(self.clients / self._rounds.least)

    @property
    def given_up(self) -> bool:
        """Whether too few clients took part for their sum to be opened."""
        return self._rounds.dp.mode == "distributed" and self.clients < self._rounds.least

    def release(self, totals: Totals) -> Totals:
        """The noisy sums, as if from the expected number of clients: all that the aggregate may see."""
        std, clip = self.std, self._gaussian.clip.norm
        return totals.covered(lambda sums: self._noise.cover(sums, std, clip), self._rounds.expected)

    def memory(self) -> Params:
        """The next round's clip, if it is adaptive."""
        quantile = self._rounds.dp.adaptive
        if quantile is None:
            return {}
        count = torch.tensor([self._short - self.clients / 2], dtype=torch.float64)
        count = self._noise.cover(count, self._rounds.count_noise, 0.5)
        share = float(count) / self._rounds.expected + 0.5
        clip = self._gaussian.clip.norm * math.exp(-_STEP * (share - quantile))
        return {CLIP: torch.tensor(clip, dtype=torch.float64)}
