"""A finished run: its figures, and recommendations from its model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from solera.core.closed_form import ClosedForm
from solera.core.errors import DataError, RunError
from solera.core.method import Method
from solera.core.spec import Home, Leaf
from solera.data.interactions import Interactions
from solera.data.ragged import Ints, Ragged
from solera.data.split import Split, history
from solera.engine import Simulation
from solera.engine.one_round import WEIGHTS
from solera.engine.serving import best_unseen
from solera.evaluate import Evaluation, Evaluator, split
from solera.methods import find
from solera.runs.federation import Federation, federation
from solera.runs.folder import RunFolder, SavedState
from solera.runs.notebook import result_html
from solera.runs.owners import THEIR_OWN, owners, scores_with
from solera.runs.result import Figures, brief, flat, metrics_table
from solera.runs.tables import Table, item_tables, user_vector

_AT_A_TIME = 256  # users that are scored


class Recommendation(NamedTuple):
    """One recommended item."""

    rank: int
    item: str
    title: str
    score: float


class Run:
    """What training leaves: `result` with all figures, and the model of the selected round."""

    def __init__(
        self,
        result: dict[str, Any],
        data: Interactions,
        simulation: Federation,
        path: Path | None,
        rounds: list[dict[str, Any]],
    ) -> None:
        self.result, self.data, self.path = result, data, path
        self._simulation, self._rounds = simulation, rounds

    @classmethod
    def open(cls, path: str | Path, *, data: Interactions | None = None, data_dir: Path | None = None) -> Run:
        """A finished run's folder. The data set is loaded again unless it is given."""
        folder = RunFolder.open(Path(path))
        config, result = folder.config, folder.result
        state = folder.state()
        assert result is not None  # state() has made sure
        if data is None:
            data = folder.data(data_dir)
        if (data.n_users, data.n_items) != (result["users"], result["items"]):
            raise RunError(
                f"the data set {config.dataset!r} has changed since the run in {path}",
                f"it had {result['users']} users and {result['items']} items",
            )
        method = find(config.method, config.options, config.plugins)
        _check_fits(method, state, data, folder.path)
        simulation = federation(config, method, split(data, config.protocol), threads=1, device="cpu")
        _restore(simulation, state, folder.path)
        return cls(result, data, simulation, folder.path, folder.history)

    def __repr__(self) -> str:
        """What was trained on what, and how good it is."""
        return brief(self.result)

    def _repr_html_(self) -> str:
        """What a notebook shows of it."""
        return result_html(self.result)

    @property
    def test(self) -> Figures:
        """Figures on the test items: "full" ranking and "sampled99"."""
        figures: Figures = self.result["test"]
        return figures

    @property
    def validation(self) -> Figures:
        """Figures on the validation items in the selected round."""
        figures: Figures = self.result["validation"]
        return figures

    @property
    def metrics(self) -> pl.DataFrame:
        """All figures as a table."""
        return metrics_table({"test": self.test, "validation": self.validation})

    @property
    def history(self) -> pl.DataFrame:
        """A row for every round: loss, seconds, bytes, and figures on validation items."""
        return pl.DataFrame([dict(flat(entry)) for entry in self._rounds], infer_schema_length=None)

    def evaluate(self, tables: str = THEIR_OWN) -> Evaluation:
        """Rank the test items again, with the model that the figures in `test` are of: every user's ranks.

        `tables` is one of `table_owners`: users keep their scorers, and see items as the server does, or as
        another user does.
        """
        simulation = self._simulation
        score = simulation.serve(history(self.parts, "test"))
        if tables != THEIR_OWN:
            if not isinstance(simulation, Simulation) or tables not in self.table_owners:
                raise RunError(
                    f"users of this run cannot be served with {tables} item tables",
                    f"it knows: {', '.join(self.table_owners) or 'one table for all'}",
                )
            score = partial(scores_with, simulation, tables)
        return self._evaluator.test(score)

    @cached_property
    def parts(self) -> Split:
        """Training, validation and test items, as the run had them."""
        return split(self.data, self.result["protocol"])

    @cached_property
    def _evaluator(self) -> Evaluator:
        return Evaluator(self.parts, self.result["seed"])

    @property
    def table_owners(self) -> tuple[str, ...]:
        """Whose item tables users can be served with; none where there is one table for all."""
        return owners(self._simulation) if isinstance(self._simulation, Simulation) else ()

    def item_tables(self, user: int) -> dict[str, Table]:
        """The item tables that user number `user` has to do with, by what they are; none in closed form."""
        return item_tables(self._simulation, user) if isinstance(self._simulation, Simulation) else {}

    def user_vector(self, user: int) -> Table | None:
        """The vector that user number `user` scores items with; None where users have none."""
        simulation = self._simulation
        if not isinstance(simulation, Simulation) or not (name := user_vector(simulation.method)):
            return None
        found: Table = simulation.state.personal.whole[name][user].double().cpu().numpy()
        return found

    def recommend(
        self,
        user: str | int,
        k: int = 10,
        *,
        only: Iterable[str] | None = None,
        without: Iterable[str] = (),
    ) -> list[Recommendation]:
        """The k items the user's device would show, without those the user already knows.

        With `only`, nothing but those items; `without` leaves some out. Both are ids of items.
        """
        index = self.data.user_map.index(str(user), "user")
        chosen = next(self._best(np.array([index]), k, self._hidden(only, without)))
        return [
            Recommendation(rank, self.data.item_map.id(item), self.data.title(item), score)
            for rank, (item, score) in enumerate(chosen, start=1)
        ]

    def recommend_many(
        self,
        users: Iterable[str | int] | None = None,
        k: int = 10,
        *,
        only: Iterable[str] | None = None,
        without: Iterable[str] = (),
    ) -> pl.DataFrame:
        """The same for several users, or for everybody: a row for every user and item."""
        known = self.data.user_map
        if users is None:
            wanted = np.arange(self.data.n_users)
        else:
            wanted = np.array([known.index(str(user), "user") for user in users], dtype=np.int64)
        hidden = self._hidden(only, without)
        rows: dict[str, list[Any]] = {"user": [], "rank": [], "item": [], "title": [], "score": []}
        for index, chosen in zip(wanted.tolist(), self._best(wanted, k, hidden), strict=True):
            for rank, (item, score) in enumerate(chosen, start=1):
                row = (known.id(index), rank, self.data.item_map.id(item), self.data.title(item), score)
                for column, value in zip(rows.values(), row, strict=True):
                    column.append(value)
        return pl.DataFrame(rows)

    def _hidden(self, only: Iterable[str] | None, without: Iterable[str]) -> Ints:
        """Items that are not to be shown to anybody."""
        known = self.data.item_map
        hidden = np.zeros(self.data.n_items, dtype=np.bool_)
        if only is not None:
            hidden[:] = True
            hidden[[known.index(str(item), "item") for item in only]] = False
        hidden[[known.index(str(item), "item") for item in without]] = True
        return np.flatnonzero(hidden)

    def _best(self, users: Ints, k: int, hidden: Ints) -> Iterator[list[tuple[int, float]]]:
        """Of every user the best items, some users at a time."""
        if k < 1:
            raise DataError(f"cannot recommend {k} items", "give -k 1 or more")
        score = self._simulation.serve(self._known)
        for begin in range(0, len(users), _AT_A_TIME):
            some = users[begin : begin + _AT_A_TIME]
            for index, scores in zip(some.tolist(), score(some), strict=True):
                seen = np.concatenate([self.data.by_user.row(index), hidden])
                yield best_unseen(scores, seen, k)

    @cached_property
    def _known(self) -> Ragged:
        """What every user knows, each item once."""
        return self.data.distinct().by_user


def _check_fits(method: Method | ClosedForm, saved: SavedState, data: Interactions, path: Path) -> None:
    """Refuse tensors of other shapes than the method has, before any of its size are made."""
    wanted: dict[str, tuple[int, ...]] = {}
    if isinstance(method, ClosedForm):
        wanted[WEIGHTS] = (method.scorer.channels * data.n_items, data.n_items)
    else:
        for leaf in method.select(home=Home.SHARED):
            shape = (data.n_items, *leaf.shape) if leaf.per_item else leaf.shape
            wanted[leaf.name] = (data.n_users, *shape) if leaf.name in method.tailored else shape
    found = {name: tuple(value.shape) for name, value in saved.shared.items() if name in wanted}
    whole = {leaf.name: leaf.shape for leaf in _whole_personal(method)}
    own = {name: tuple(value.shape[1:]) for name, value in saved.personal.items() if name in whole}
    if found != wanted or own != whole:
        raise RunError(f"the state in {path} is not its method's", "train again into a new folder")


def _whole_personal(method: Method | ClosedForm) -> tuple[Leaf, ...]:
    return () if isinstance(method, ClosedForm) else method.select(home=Home.PERSONAL, per_item=False)


def _restore(simulation: Federation, saved: SavedState, path: Path) -> None:
    """Give a federation the state of a folder, whose tensors may be anything."""
    n_items = simulation.data.n_items
    try:
        items = [value for name, value in saved.personal.items() if name.endswith("/items")]
        if any(value.numel() and not 0 <= int(value.min()) <= int(value.max()) < n_items for value in items):
            raise ValueError("rows of items that there are not")
        before = {name: value.shape for name, value in simulation.state.tensors()[0].items()}
        simulation.restore(saved.shared, saved.personal)
        after = {name: value.shape for name, value in simulation.state.tensors()[0].items()}
        if before and before != after:
            raise ValueError(f"shapes {after}, not {before}")
        simulation.serve(simulation.data.train)(np.array([0]))
    except (KeyError, ValueError, IndexError, RuntimeError, TypeError) as error:
        message = f"the state in {path} does not fit its method and data set: {error}"
        raise RunError(message[:300], "train again into a new folder") from None
