"""How much the items of a history weigh in a memory of it: by their places, or by days."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solera.core.types import Floats, Ints


@dataclass(frozen=True)
class Timing:
    """How memories fade by days: D is `decay_days`, c is `least_weight`.

    With `until_next` they fade until the time of the next item, that of the request when items are scored.
    """

    decay_days: float
    least_weight: float = 0.0
    until_next: bool = False

    def weights(self, gaps: Floats, decays: tuple[float, ...]) -> Floats:
        """Weights [decays, …] of items by the days that have passed since."""
        faded = np.power(np.reshape(decays, (-1,) + (1,) * gaps.ndim), gaps / self.decay_days)
        found: Floats = np.maximum(faded, self.least_weight)
        return found

    def products(
        self, days: Floats, decays: tuple[float, ...], horizon: int, horizon_decay: float
    ) -> tuple[Floats, Floats]:
        """S and T over the positions of a history: [decays, length, decays, length], […, 1, length]."""
        length, channels = len(days), len(decays)
        before, place = np.arange(length - 1)[:, None], np.arange(length)
        until = days[1:] if self.until_next else days[:-1]
        weights = self.weights(np.maximum(until[:, None] - days, 0.0), decays) * (place <= before)
        memories = weights.transpose(1, 0, 2).reshape(
            length - 1, channels * length
        )  # s_t over positions, [t, decays · length]
        lag = place - before - 1
        following = np.where((lag >= 0) & (lag < horizon), horizon_decay ** np.maximum(lag, 0.0), 0.0)
        return (
            (memories.T @ memories).reshape(channels, length, channels, length),
            (memories.T @ following).reshape(channels, length, 1, length),
        )


def fading(decays: tuple[float, ...], ages: Ints, gaps: Floats | None, timing: Timing | None) -> Floats:
    """Weights [decays, …] of items in memories, by their ages, or by days if gaps and a timing are given."""
    if timing and gaps is not None:
        return timing.weights(gaps, decays)
    weights: Floats = np.power(np.array(decays)[:, None], ages)
    return weights
