"""A synthetic world of users and items with a known structure, of any size, for measurements.

Items belong to communities, and their popularity follows Zipf's law. A user has a main and a second
community; the number of a user's interactions is log-normal. Every item has one successor in its
community, and a user often takes the successor right after the item. So a recommender that learns
communities is better than popularity, and one that also learns the order is better still.

A user's rows depend on the seed and the user alone, not on how the world is cut into batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl

from solera.core.errors import ConfigError
from solera.core.randomness import Purpose, client_keys, draws, generator, uniform
from solera.core.types import Floats, Ints
from solera.data.ragged import Ragged
from solera.data.table import write_batches

LEAST = 5  # interactions of a user
USERS_AT_A_TIME = 20_000
SCHEMA = {"user": pl.Int64, "item": pl.Int64, "time": pl.Int64}
_ITEMS_PER_COMMUNITY = 250
_MAIN, _SECOND = 0.65, 0.25  # shares of a user's draws from the two communities; the rest is from all items
_FOLLOWS = 0.3  # chance that a draw is replaced by the successor of the draw before it
_SPREAD = 1.0  # standard deviation of the logarithm of a user's activity
_ZIPF = 0.9
_LARGEST_SHARE = 0.25  # of all items that one user may have
_START, _YEARS, _YEAR = 1_600_000_000, 3, 365 * 86_400
_PER_DRAW = 3  # random numbers: which community, which item, whether it follows
_PER_USER = 3  # main community, second community, start


@dataclass(frozen=True)
class World:
    """The size and the seed, which determine every row."""

    users: int
    items: int
    interactions: int
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse sizes that leave no room for the structure."""
        if self.users < 1 or self.items < 4 * LEAST:
            raise ConfigError(
                f"{self.users} users and {self.items} items are too few",
                f"give --users 1 or more and --items {4 * LEAST} or more",
            )
        if self.interactions < LEAST * self.users:
            raise ConfigError(
                f"{self.interactions:,} interactions are too few for {self.users:,} users",
                f"give --interactions {LEAST * self.users} or more: {LEAST} for every user",
            )
        if self.interactions > self.users * int(self.items * _LARGEST_SHARE) / 4:
            raise ConfigError(
                f"{self.interactions:,} interactions are too many for {self.users:,} users and "
                f"{self.items:,} items",
                f"give --interactions {self.users * int(self.items * _LARGEST_SHARE) // 4} or less",
            )

    @property
    def n_communities(self) -> int:
        """Number of communities."""
        return max(4, self.items // _ITEMS_PER_COMMUNITY)

    @cached_property
    def lengths(self) -> Ints:
        """How many interactions every user has: at least `LEAST`, with log-normal differences."""
        draw = self._generator(0)
        weight = np.exp(_SPREAD * draw.standard_normal(self.users))
        extra = (self.interactions - LEAST * self.users) * weight / weight.sum()
        lengths: Ints = (LEAST + np.floor(extra + draw.random(self.users))).astype(np.int64)
        return np.minimum(lengths, int(self.items * _LARGEST_SHARE))

    @cached_property
    def communities(self) -> Ints:
        """The community of every item."""
        return self._generator(1).integers(self.n_communities, size=self.items)

    @cached_property
    def popularity(self) -> Floats:
        """The weight of every item within its community, by Zipf's law. Item numbers do not show it."""
        rank = self._generator(2).permutation(self.items)
        return np.asarray((rank + 10.0) ** -_ZIPF, dtype=np.float64)

    @cached_property
    def successors(self) -> Ints:
        """The item that often follows each item: another one of its community."""
        draw, result = self._generator(3), np.empty(self.items, dtype=np.int64)
        for bounds in zip(self._starts[:-1], self._starts[1:], strict=True):
            members = draw.permutation(self._by_community[slice(*bounds)])
            result[members] = np.roll(members, 1)
        return result

    def tastes(self, users: Ints) -> tuple[Ints, Ints]:
        """The main and the second community of the given users."""
        found = self._uniform(users, 0, np.full(len(users), _PER_USER)).reshape(-1, _PER_USER)
        main = (found[:, 0] * self.n_communities).astype(np.int64)
        second = (main + 1 + found[:, 1] * (self.n_communities - 1)).astype(np.int64) % self.n_communities
        return main, second

    def histories(self, users: Ints) -> Ragged:
        """The items of the given users, oldest first, without repetition."""
        wanted = self.lengths[users]
        tried = wanted + wanted // 2 + 2 * LEAST
        found = self._uniform(users, 1, tried * _PER_DRAW).reshape(-1, _PER_DRAW)
        rows = np.repeat(np.arange(len(users)), tried)
        drawn = self._items(found[:, 0], found[:, 1], *(taste[rows] for taste in self.tastes(users)))
        follows = found[:, 2] < _FOLLOWS
        follows[1:] &= ~follows[:-1] & (rows[1:] == rows[:-1])
        follows[0] = False
        drawn[1:] = np.where(follows[1:], self.successors[drawn[:-1]], drawn[1:])
        _, first = np.unique(rows * self.items + drawn, return_index=True)
        first.sort()
        distinct = np.bincount(rows[first], minlength=len(users))
        place = np.arange(len(first)) - np.repeat(np.cumsum(distinct) - distinct, distinct)
        kept = first[place < wanted[rows[first]]]
        return Ragged.of_lengths(np.minimum(distinct, wanted), drawn[kept])

    def times(self, users: Ints, histories: Ragged) -> Ints:
        """Seconds since 1970 of every interaction, increasing within a user."""
        found = self._uniform(users, 0, np.full(len(users), _PER_USER)).reshape(-1, _PER_USER)
        begin = _START + (found[:, 2] * (_YEARS - 1) * _YEAR).astype(np.int64)
        gaps = 1 - np.log1p(-self._uniform(users, 2, histories.lengths)) * _YEAR / 200
        total = np.cumsum(gaps.astype(np.int64))
        before = np.concatenate([[0], total])[histories.offsets[:-1]]
        return np.repeat(begin - before, histories.lengths) + total

    def chances(self, users: Ints) -> Floats:
        """How likely each user's next item is, whatever came before: [users, items]."""
        within = self.popularity / self._mass[self.communities]
        main, second = (taste[:, None] for taste in self.tastes(users))
        everywhere = self.popularity / self.popularity.sum()
        result: Floats = (
            _MAIN * within * (self.communities == main)
            + _SECOND * within * (self.communities == second)
            + (1 - _MAIN - _SECOND) * everywhere
        )
        return result

    def batches(
        self, on_users: Callable[[int, int], None] = lambda done, users: None
    ) -> Iterator[pl.DataFrame]:
        """The rows, user after user, in batches. `on_users` is called with the users done and their total."""
        for begin in range(0, self.users, USERS_AT_A_TIME):
            users = np.arange(begin, min(begin + USERS_AT_A_TIME, self.users))
            found = self.histories(users)
            columns = (users[found.rows], found.values, self.times(users, found))
            yield pl.DataFrame(dict(zip(SCHEMA, columns, strict=True)))
            on_users(begin + len(users), self.users)

    def write(self, path: Path, on_users: Callable[[int, int], None] = lambda done, users: None) -> None:
        """Write all rows to a .parquet or .csv file."""
        write_batches(path, self.batches(on_users), SCHEMA)

    @cached_property
    def _by_community(self) -> Ints:
        return np.argsort(self.communities, kind="stable")

    @cached_property
    def _starts(self) -> Ints:
        counts = np.bincount(self.communities, minlength=self.n_communities)
        return np.concatenate([[0], np.cumsum(counts)])

    @cached_property
    def _mass(self) -> Floats:
        mass = np.zeros(self.n_communities)
        np.add.at(mass, self.communities, self.popularity)
        return mass

    @cached_property
    def _cumulative(self) -> Floats:
        return np.concatenate([[0.0], np.cumsum(self.popularity[self._by_community])])

    def _items(self, which: Floats, where: Floats, main: Ints, second: Ints) -> Ints:
        """Draw one item for every pair of uniform numbers: a community by `which`, its item by `where`."""
        community = np.where(which < _MAIN, main, second)
        everywhere = which >= _MAIN + _SECOND
        low = np.where(everywhere, 0, self._starts[community])
        high = np.where(everywhere, self.items, self._starts[community + 1])
        mass = self._cumulative
        at = mass[low] + where * (mass[high] - mass[low])
        place = np.clip(np.searchsorted(mass, at, side="right") - 1, low, high - 1)
        return self._by_community[place]

    def _uniform(self, users: Ints, purpose: int, counts: Ints) -> Floats:
        """Numbers in [0, 1), the same for a user in every batch."""
        return uniform(draws(client_keys(self.seed, Purpose.SYNTHETIC, purpose, users), counts))

    def _generator(self, purpose: int) -> np.random.Generator:
        return generator(self.seed, Purpose.SYNTHETIC, purpose)
