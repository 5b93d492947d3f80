"""Recommend from a trained federation: for one user, for many, or for a new user's history."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from solera.baselines import Ease
from solera.baselines.training import Baseline
from solera.core.closed_form import WEIGHTS
from solera.core.errors import DataError, RunError
from solera.core.leaf import Leaf
from solera.core.method import Method
from solera.core.types import Floats, Ints
from solera.data.interactions import Interactions
from solera.data.ragged import Ragged
from solera.data.table import write_batches
from solera.engine import Simulation
from solera.engine.serving import best_unseen, newcomer
from solera.math.sparse_ridge import Neighbours
from solera.runs.federation import Federation

Ids = Iterable[str | int] | str | int
OnUsers = Callable[[int, int], None]  # users done, and their total

_LOG = logging.getLogger(__name__)
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


class Serving(Protocol):
    """A model that scores items by users' histories."""

    def serve(self, known: Ragged) -> Callable[[Ints], Tensor]:
        """A function that scores all items for users, given the histories of all users, oldest first."""
        ...


def listed(ids: Ids) -> list[str]:
    """Ids as text, whether one is given or several."""
    if isinstance(ids, str) or not isinstance(ids, Iterable):
        return [str(ids)]
    return [str(each) for each in ids]


def standardised(scores: Tensor) -> Tensor:
    """Scores with mean 0 and standard deviation 1 over the items of each user; 0 if all are equal."""
    centred = scores - scores.mean(-1, keepdim=True)
    return centred / centred.square().mean(-1, keepdim=True).sqrt().clamp(min=1e-12)


@dataclass(frozen=True)
class Blended:
    """Two models that score together."""

    first: Serving
    second: Serving
    weight: float

    def serve(self, known: Ragged) -> Callable[[Ints], Tensor]:
        """Blended scores of users with these histories."""
        one, other = self.first.serve(known), self.second.serve(known)
        return lambda users: mixed(one(users), other(users), self.weight)


def mixed(first: Tensor, second: Tensor, weight: float) -> Tensor:
    """The blend of two models' scores."""
    return standardised(first).lerp(standardised(second).to(first), weight)


class Centralized:
    """A fitted baseline, to recommend from."""

    def __init__(self, model: Baseline) -> None:
        self.model = model

    def serve(self, known: Ragged) -> Callable[[Ints], Tensor]:
        """A function that scores all items for users with these histories."""
        return lambda users: self.model.scores(users, known)

    def newcomer(self, known: Ragged) -> Tensor:
        """Scores [n_items] for one new user."""
        if self.model.refreshes:
            raise RunError("this model only knows the users it was fitted to", "call update with their rows")
        return self.serve(known)(np.array([0]))[0]


class Recommends:
    """Recommends items to the users of a run's data."""

    data: Interactions
    trained: NDArray[np.bool_] | None = None  # all others get the most popular items; None: everybody is
    skips_unknown = False  # items of a history

    @property
    def _simulation(self) -> Federation | Blended | Centralized:
        raise NotImplementedError

    @property
    def reads_histories(self) -> bool:
        """Whether users are scored by their histories alone."""
        model = self._simulation
        if isinstance(model, Centralized):
            return not model.model.refreshes
        return not isinstance(model, Blended) and model.method.serves_from_history

    def has_fallback(self, users: Ids | None = None) -> NDArray[np.bool_]:
        """Which of these users, or of everybody, get the most popular items."""
        wanted = self._indices(users)
        return np.zeros(len(wanted), np.bool_) if self.trained is None else ~self.trained[wanted]

    def recommend(
        self, user: str | int, k: int = 10, *, only: Ids | None = None, without: Ids = ()
    ) -> list[Recommendation]:
        """The k best items for a user, without those the user has interacted with.

        `only` limits the result to some items, `without` leaves some out; both are item ids.
        """
        _, items, scores = next(self._best(self._indices([user]), k, self._hidden(only, without)))
        found = zip(items[0].tolist(), scores[0].tolist(), strict=True)
        return self._named([(item, score) for item, score in found if score > -np.inf])

    def recommend_many(
        self, users: Ids | None = None, k: int = 10, *, only: Ids | None = None, without: Ids = ()
    ) -> pl.DataFrame:
        """Recommendations for several users, or for everybody: a table with one row per user and item."""
        batches = list(self._batches(self._indices(users), k, self._hidden(only, without)))
        return pl.concat(batches) if batches else pl.DataFrame(schema=SCHEMA)

    def write_recommendations(
        self,
        path: str | Path,
        users: Ids | None = None,
        k: int = 10,
        *,
        only: Ids | None = None,
        without: Ids = (),
        on_users: OnUsers | None = None,
    ) -> None:
        """Write the table of `recommend_many` to a .parquet or .csv file without holding it in memory.

        The file appears when it is complete. `on_users` is called with the number of users written and their
        total.
        """
        wanted = self._indices(users)
        batches = self._batches(wanted, k, self._hidden(only, without))

        def told() -> Iterator[pl.DataFrame]:
            for number, batch in enumerate(batches, start=1):
                yield batch
                if on_users:
                    on_users(min(len(wanted), number * USERS_AT_A_TIME), len(wanted))

        write_batches(Path(path), told(), SCHEMA)

    def recommend_for(
        self,
        history: Ids,
        k: int = 10,
        *,
        rounds: int = NEWCOMER_ROUNDS,
        only: Ids | None = None,
        without: Ids = (),
    ) -> list[Recommendation]:
        """Recommendations for a user who was not in training, given the ids of their items.

        The oldest item comes first. If users have parameters of their own, these are trained on the history
        for `rounds` rounds, as on a new device. The shared parameters do not change.
        """
        known, given = self.data.item_map, listed(history)
        found = [item for item in given if item in known] if self.skips_unknown else given
        if len(found) < len(given):
            _LOG.warning("%d of %d items of the history are unknown", len(given) - len(found), len(given))
        items = np.array([known.index(item, "item") for item in found], dtype=np.int64)
        if not len(items) and not self.skips_unknown:
            raise DataError("the history has no items", "give the ids of at least one item")
        _check_k(k)
        scores = self.newcomer_scores(items, rounds) if len(items) else self._popularity.clone()
        seen = np.concatenate([items, self._hidden(only, without)])
        return self._named(best_unseen(scores, seen, k))

    def similar(self, item: str | int, k: int = 10) -> list[Recommendation]:
        """The k most similar items, by the cosine of shared item vectors or by closed-form weights."""
        _check_k(k)
        index = self.data.item_map.index(str(item), "item")
        scores = self._similarities(index)
        return self._named(best_unseen(scores, np.array([index]), k))

    def scorer(self, known: Ragged | None = None) -> Callable[[Ints], Tensor]:
        """A function that scores all items for users, given by their numbers: [users, items].

        `solera.evaluate` takes it. The numbers are those of the users in `data`, or of histories in `known`
        if the model reads histories.
        """
        score = self._simulation.serve(self._known if known is None else known)
        if self.trained is None or known is not None:
            return score
        trained, popularity = self.trained, self._popularity

        def scores(users: Ints) -> Tensor:
            found = score(users)
            if not trained[users].all():
                found = found.contiguous()
                found[torch.from_numpy(~trained[users])] = popularity.to(found)
            return found

        return scores

    def _batches(self, wanted: Ints, k: int, hidden: Ints) -> Iterator[pl.DataFrame]:
        """Recommendations in batches of `USERS_AT_A_TIME` users."""
        data = self.data
        ids, titles = data.item_map.ids, self._titles
        for some, items, scores in self._best(wanted, k, hidden):
            there = np.isfinite(scores)
            row, place = np.nonzero(there)
            chosen = items[there]
            columns = {
                "user": data.user_map.ids[some[row]],
                "rank": place + 1,
                "item": ids[chosen],
                "title": titles[chosen],
                "score": scores[there].astype(np.float64),
            }
            yield pl.DataFrame(columns, schema=SCHEMA)

    def _best(self, users: Ints, k: int, hidden: Ints) -> Iterator[tuple[Ints, Ints, Floats]]:
        """Some users at a time, their best items and these items' scores; -inf where there are fewer."""
        _check_k(k)
        score, items = self.scorer(), torch.from_numpy(hidden)
        for begin in range(0, len(users), USERS_AT_A_TIME):
            some = users[begin : begin + USERS_AT_A_TIME]
            scores = score(some).contiguous()
            seen = self.data.by_user.take(some)
            scores[torch.from_numpy(seen.rows), torch.from_numpy(seen.values.astype(np.int64))] = -torch.inf
            scores[:, items] = -torch.inf
            best = torch.topk(scores, min(k, scores.shape[1]))
            yield some, best.indices.numpy(), best.values.numpy()

    @cached_property
    def _titles(self) -> NDArray[np.str_]:
        """The titles of all items."""
        return np.array([self.data.title(item) for item in range(self.data.n_items)])

    @cached_property
    def _popularity(self) -> Tensor:
        """How many users have each item."""
        pairs = self.data.distinct().items
        return torch.from_numpy(np.bincount(pairs, minlength=self.data.n_items)).float()

    @cached_property
    def _known(self) -> Ragged:
        """Every user's distinct items."""
        return self.data.distinct().timed_by_user

    def _indices(self, users: Ids | None) -> Ints:
        """Indices of these users, or of all users."""
        if users is None:
            return np.arange(self.data.n_users)
        known = self.data.user_map
        return np.array([known.index(user, "user") for user in listed(users)], dtype=np.int64)

    def _hidden(self, only: Ids | None, without: Ids) -> Ints:
        """Items that are not shown to anybody."""
        known = self.data.item_map
        hidden = np.zeros(self.data.n_items, dtype=np.bool_)
        if only is not None:
            hidden[:] = True
            hidden[[known.index(item, "item") for item in listed(only)]] = False
        hidden[[known.index(item, "item") for item in listed(without)]] = True
        return np.flatnonzero(hidden)

    def _named(self, chosen: list[tuple[int, float]]) -> list[Recommendation]:
        return [
            Recommendation(rank, self.data.item_map.id(item), self.data.title(item), score)
            for rank, (item, score) in enumerate(chosen, start=1)
        ]

    def newcomer_scores(self, history: Ints, rounds: int = NEWCOMER_ROUNDS) -> Tensor:
        """Scores of all items, [n_items], for a new user with these items, oldest first."""
        federation, me = self._simulation, np.array([0])
        if isinstance(federation, Blended):
            known = Ragged.of_lengths(np.array([len(history)]), history)
            return federation.serve(known)(me)[0]
        if isinstance(federation, Centralized):
            return federation.newcomer(Ragged.of_lengths(np.array([len(history)]), history))
        method, shared, seed = federation.method, federation.state.shared, 0
        if isinstance(federation, Simulation):
            seed, shared = federation.seed, federation.received
            shared = {n: v.mean(0) if n in federation.method.tailored else v for n, v in shared.items()}
        dtype = next(value.dtype for value in shared.values() if value.is_floating_point())
        alone, known = newcomer(method, shared, history, self.data.n_items, seed=seed, dtype=dtype)
        if isinstance(alone, Simulation) and not method.serves_from_history:
            for round_ in range(rounds):
                deque(alone.train_clients(round_, me), maxlen=0)
        return alone.serve(known)(me)[0]

    def _similarities(self, item: int) -> Tensor:
        """Similarity of every item to one item: [n_items]."""
        federation = self._simulation
        if isinstance(federation, Blended):
            raise RunError("a blend has no item vectors to compare", "use one of the two runs in its folder")
        if isinstance(federation, Centralized):
            if not isinstance(federation.model, Ease):
                raise RunError("of the baselines, only ease compares items", "use ease, or fedease")
            return federation.model.weights[item].clone()
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
