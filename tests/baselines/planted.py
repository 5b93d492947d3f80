"""Data in which it is known what can be learned."""

from __future__ import annotations

import numpy as np

from solera.data.interactions import IdMap, Interactions
from solera.data.ragged import Ragged

BLOCK = 12


def interactions(lists: list[list[int]], n_items: int) -> Interactions:
    """One list per user, oldest first."""
    rows = Ragged.from_lists(lists)
    users, items = (IdMap(np.arange(n).astype(str)) for n in (len(lists), n_items))
    return Interactions("planted", rows.rows, rows.values, np.arange(len(rows.values)), users, items)


def blocks(n_users: int = 80, n_blocks: int = 4) -> Interactions:
    """Every user has nine items of one block of twelve, and none of the others.

    At test time a user has four unmet items in the block and 36 outside: a model that knows the blocks has
    the answer among its first four, chance among its first five with probability 5/40.
    """
    rng = np.random.default_rng(0)
    lists = [(rng.permutation(BLOCK)[:9] + BLOCK * (user % n_blocks)).tolist() for user in range(n_users)]
    return interactions(lists, BLOCK * n_blocks)


def noise(n_users: int = 200, n_items: int = 60) -> Interactions:
    """Twelve random items per user: nothing can be learned, and chance has the answer in ten of 49 cases."""
    rng = np.random.default_rng(0)
    return interactions([rng.permutation(n_items)[:12].tolist() for _ in range(n_users)], n_items)
