"""What an evaluation draws: a sample of the users, and items that a user has not met."""

from __future__ import annotations

import numpy as np

from solera.core.randomness import Bits, Purpose, below, draws, generator
from solera.core.types import Ints
from solera.data.ragged import Ragged

SAMPLE = 2  # the stream of samples of users; 0 and 1 are those of validation and test


def spread_by_activity(users: Ints, lengths: Ints, count: int, seed: int) -> Ints:
    """A fixed sample of users, ascending: one of each of `count` groups of users with like activity.

    All of them, if there are not more.
    """
    if len(users) <= count:
        return users
    draw = generator(seed, Purpose.EVALUATION, SAMPLE)
    shuffled = draw.permutation(users)
    ordered = shuffled[np.argsort(lengths[shuffled], kind="stable")]
    bounds = np.linspace(0, len(users), count + 1).astype(np.int64)
    return np.sort(ordered[draw.integers(bounds[:-1], bounds[1:])])


def sample_unmet(met: Ragged, n_items: int, size: int, keys: Bits) -> Ints:
    """Draw `size` items that are not in `met` (sorted, unique) for every user, uniformly without repetition.

    Returns [users, size], with -1 where a user has fewer unmet items. The result for a user depends only on
    the key of the user's own stream. Uses Floyd's algorithm, one step for all users at a time: step j draws t
    from 0…j and takes t, or j if t was taken before.
    """
    bits = draws(keys, np.full(len(met), size)).reshape(len(met), size)
    unmet = n_items - met.lengths
    drawn = np.full((len(met), size), -1, dtype=np.int64)
    for step in range(size):
        j = unmet - size + step  # negative if fewer than `size` items can be drawn
        t = below(bits[:, step], j + 1)
        taken = (drawn[:, :step] == t[:, None]).any(axis=1)
        drawn[:, step] = np.where(j < 0, -1, np.where(taken, j, t))
    return _nth_unmet(met, n_items, drawn)


def _nth_unmet(met: Ragged, n_items: int, nth: Ints) -> Ints:
    """The nth[u, ·]-th item (from 0) that user u has not met: n plus the number of met items below it.

    The i-th met item a_i has a_i − i unmet items below it, so it lies below the n-th unmet one exactly
    if a_i − i ≤ n. a_i − i never decreases along a row, so one sorted search serves all users.
    """
    below = met.values - (np.arange(len(met.values)) - np.repeat(met.offsets[:-1], met.lengths))
    rows = np.arange(len(met))[:, None]
    keys = met.rows * (n_items + 1) + below
    found = np.searchsorted(keys, rows * (n_items + 1) + nth, side="right") - met.offsets[:-1, None]
    return np.where(nth < 0, -1, nth + found)
