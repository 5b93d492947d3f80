"""Recommend from a trained federation: for one user, for many, or for a new user's history."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import torch
from torch import Tensor

from solera.core.closed_form import WEIGHTS
from solera.core.errors import DataError, RunError
from solera.core.leaf import Leaf
from solera.core.method import Method
from solera.core.types import Ints
from solera.data.interactions import Interactions
from solera.data.ragged import Ragged
from solera.data.table import write_batches
from solera.engine import Simulation
from solera.engine.serving import best_unseen, newcomer
from solera.math.neighbours import Neighbours
from solera.runs.blend import Blended
from solera.runs.federation import Federation

Ids = Iterable[str | int]
OnUsers = Callable[[int, int], None]  # users done, and their total

USERS_AT_A_TIME = 256
NEWCOMER_ROUNDS = 20  # rounds in which a new user's own parameters are trained
SCHEMA = pl.Schema(
    {
        "user": pl.String(),
        "rank": pl.Int64(),
        "item": pl.String(),
        "title": pl.String(),
        "score": pl.Float64(),
    }
)


class Recommendation(NamedTuple):
    """One recommended item."""

    rank: int
    item: str
    title: str
    score: float


class Shown(NamedTuple):
    """Filter by item id: `only` these items, or all; `without` these items."""

    only: Ids | None = None
    without: Ids = ()


class Recommender:
    """Recommends items to the users of a federation's data."""

    def __init__(self, federation: Federation | Blended, data: Interactions) -> None:
        self._federation, self._data = federation, data

    def for_user(self, user: str | int, k: int, shown: Shown) -> list[Recommendation]:
        """The k best items for one user, without those the user has interacted with."""
        users = self._indices([user])
        return self._named(next(self._best(users, k, self._hidden(shown))))

    def for_users(self, users: Ids | None, k: int, shown: Shown) -> pl.DataFrame:
        """The k best items of several users, or of everybody: one row per user and item."""
        batches = list(self._batches(self._indices(users), k, self._hidden(shown)))
        return pl.concat(batches) if batches else pl.DataFrame(schema=SCHEMA)

    def write(self, path: Path, users: Ids | None, k: int, shown: Shown, on_users: OnUsers | None) -> None:
        """Write the table of `for_users` to a .parquet or .csv file in batches; it appears when complete."""
        wanted = self._indices(users)
        batches = self._batches(wanted, k, self._hidden(shown))

        def told() -> Iterator[pl.DataFrame]:
            for number, batch in enumerate(batches, start=1):
                yield batch
                if on_users:
                    on_users(min(len(wanted), number * USERS_AT_A_TIME), len(wanted))

        write_batches(path, told(), SCHEMA)

    def for_history(self, history: Ids, k: int, rounds: int, shown: Shown) -> list[Recommendation]:
        """The k best items for a user who was not in training, given their items, oldest first.

        If users have parameters of their own, these are trained on the history for `rounds` rounds, as on a
        new device. The shared parameters do not change.
        """
        known = self._data.item_map
        items = np.array([known.index(str(item), "item") for item in history], dtype=np.int64)
        if not len(items):
            raise DataError("the history has no items", "give the ids of at least one item")
        _check_k(k)
        scores = self._newcomer(items, rounds)
        seen = np.concatenate([items, self._hidden(shown)])
        return self._named(best_unseen(scores, seen, k))

    def similar(self, item: str | int, k: int) -> list[Recommendation]:
        """The k items most similar to one item.

        Similarity is the cosine of shared item vectors, or in closed-form methods the weight between the
        items.
        """
        _check_k(k)
        index = self._data.item_map.index(str(item), "item")
        scores = self._similarities(index)
        return self._named(best_unseen(scores, np.array([index]), k))

    def _batches(self, wanted: Ints, k: int, hidden: Ints) -> Iterator[pl.DataFrame]:
        """Recommendations in batches of `USERS_AT_A_TIME` users."""
        data = self._data
        for begin in range(0, len(wanted), USERS_AT_A_TIME):
            some = wanted[begin : begin + USERS_AT_A_TIME]
            rows = [
                (data.user_map.id(user), rank, data.item_map.id(item), data.title(item), score)
                for user, chosen in zip(some.tolist(), self._best(some, k, hidden), strict=True)
                for rank, (item, score) in enumerate(chosen, start=1)
            ]
            yield pl.DataFrame(rows, schema=SCHEMA, orient="row")

    def _best(self, users: Ints, k: int, hidden: Ints) -> Iterator[list[tuple[int, float]]]:
        """The best items of each user, scored in batches of `USERS_AT_A_TIME`."""
        _check_k(k)
        score = self._federation.serve(self._known)
        for begin in range(0, len(users), USERS_AT_A_TIME):
            some = users[begin : begin + USERS_AT_A_TIME]
            for index, scores in zip(some.tolist(), score(some), strict=True):
                yield best_unseen(scores, np.concatenate([self._data.by_user.row(index), hidden]), k)

    @cached_property
    def _known(self) -> Ragged:
        """Every user's distinct items."""
        return self._data.distinct().timed_by_user

    def _indices(self, users: Ids | None) -> Ints:
        """Indices of these users, or of all users."""
        if users is None:
            return np.arange(self._data.n_users)
        return np.array([self._data.user_map.index(str(user), "user") for user in users], dtype=np.int64)

    def _hidden(self, shown: Shown) -> Ints:
        """Items that are not shown to anybody."""
        known = self._data.item_map
        hidden = np.zeros(self._data.n_items, dtype=np.bool_)
        if shown.only is not None:
            hidden[:] = True
            hidden[[known.index(str(item), "item") for item in shown.only]] = False
        hidden[[known.index(str(item), "item") for item in shown.without]] = True
        return np.flatnonzero(hidden)

    def _named(self, chosen: list[tuple[int, float]]) -> list[Recommendation]:
        return [
            Recommendation(rank, self._data.item_map.id(item), self._data.title(item), score)
            for rank, (item, score) in enumerate(chosen, start=1)
        ]

    def _newcomer(self, history: Ints, rounds: int) -> Tensor:
        """Scores [n_items] for one new user."""
        federation, me = self._federation, np.array([0])
        if isinstance(federation, Blended):
            known = Ragged.of_lengths(np.array([len(history)]), history)
            return federation.serve(known)(me)[0]
        method, shared, seed = federation.method, federation.state.shared, 0
        if isinstance(federation, Simulation):
            seed, shared = federation.seed, federation.received
            shared = {n: v.mean(0) if n in federation.method.tailored else v for n, v in shared.items()}
        dtype = next(value.dtype for value in shared.values() if value.is_floating_point())
        alone, known = newcomer(method, shared, history, self._data.n_items, seed=seed, dtype=dtype)
        if isinstance(alone, Simulation) and not method.serves_from_history:
            for round_ in range(rounds):
                deque(alone.train_clients(round_, me), maxlen=0)
        return alone.serve(known)(me)[0]

    def _similarities(self, item: int) -> Tensor:
        """Similarity of every item to one item: [n_items]."""
        federation = self._federation
        if isinstance(federation, Blended):
            raise RunError("a blend has no item vectors to compare", "use one of the two runs in its folder")
        if not isinstance(federation, Simulation):
            weights, channels = federation.state.shared, federation.method.scorer.channels
            sparse = Neighbours.of(weights, channels)
            return sparse.row(item * channels) if sparse else weights[WEIGHTS][item].clone()
        method, state = federation.method, federation.state
        with torch.no_grad():
            seen = method.view.see(federation.held(np.array([0])))
        shared = [leaf for leaf in _tables_of(method, tuple(seen.shape[-1:])) if leaf.name in state.shared]
        if not shared:
            raise RunError(
                f"{method.name!r} has no shared item vectors to compare", "use a run of another method"
            )
        table = state.shared[shared[0].name]
        vectors = table.mean(0) if shared[0].name in method.tailored else table
        directions = torch.nn.functional.normalize(vectors.double(), dim=1)
        return directions @ directions[item]


def _check_k(k: int) -> None:
    if k < 1:
        raise DataError(f"cannot recommend {k} items", "give -k 1 or more")


def _tables_of(method: Method, row: tuple[int, ...]) -> list[Leaf]:
    """The tables that are not derived and whose rows have the shape of those that the scorer sees."""
    return [leaf for leaf in method.select(per_item=True) if leaf.shape == row and not leaf.derived_from]
