"""Draw the clients of a round."""

from __future__ import annotations

import numpy as np

from solera.core.randomness import Purpose, generator
from solera.core.types import Ints


def choose(able: Ints, share: float, seed: int, round_: int) -> Ints:
    """Draw a fraction of the clients (up to 1) or a number of them (above 1), ascending and reproducible."""
    count = how_many(able, share)
    if count == len(able):
        return able
    return np.sort(generator(seed, Purpose.CLIENTS, round_).choice(able, count, replace=False))


def how_many(able: Ints, share: float) -> int:
    """The number of clients in a round."""
    return max(1, round(share * len(able))) if share <= 1 else min(len(able), round(share))
