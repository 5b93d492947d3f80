"""Scores of all items when every rank has only some rows of the tables.

The owners show their rows to all ranks, a slice at a time, and every rank scores them for its own clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from torch import Tensor

from solera.core.arrays import Ints
from solera.core.history import INPUTS, MEMORY, FadingHistory, remembers
from solera.core.item_slices import ItemSlice, ItemSlices
from solera.core.spec import Params
from solera.data.ragged import Ragged
from solera.engine.ranks import Share
from solera.engine.row_owners import SLICE_ROWS, RowOwners
from solera.engine.scoring import all_scores
from solera.engine.simulation import Simulation


class TableSlices(ItemSlices):
    """The items of a sharded federation in slices, with scores for this rank's clients."""

    rows = SLICE_ROWS

    def __init__(
        self, simulation: Simulation, owners: RowOwners, share: Share, tables: Params, known: Ragged
    ) -> None:
        """`tables` are the own rows of all divided tables, `known` the histories of the own clients."""
        self._method, self._state = simulation.method, simulation.state
        self._owners, self._share, self._tables, self._known = owners, share, tables, known

    def largest(self, number: int) -> int:
        """The largest number of all ranks."""
        return int(self._owners.ranks.largest(torch.tensor(number)))

    def serve(self, users: Ints) -> Callable[[], Iterator[ItemSlice]]:
        """A function that goes through all items once, with scores for these users, ascending numbers."""
        scorer = self._method.scorer
        memory = self._memory(scorer, self._share.places(users)) if remembers(scorer) else None
        tables = dict(self._tables)
        if memory is not None:
            del tables[INPUTS]  # memories have all of it that scores need

        def slices() -> Iterator[ItemSlice]:
            for items, rows in self._owners.slices(tables, self.rows):
                yield ItemSlice(items, partial(self._scores, items, rows, users, memory))

        return slices

    def _scores(self, items: range, rows: Params, users: Ints, memory: Tensor | None, some: Ints) -> Tensor:
        """Scores of some of the users."""
        shared, personal = self._state.shared, self._state.personal
        more = {name: rows[name] for name in rows if name not in shared}
        if memory is not None:
            more[MEMORY] = memory[torch.from_numpy(np.searchsorted(users, some))]
        seen = {name: rows.get(name, value) for name, value in shared.items() if name != INPUTS}
        with torch.no_grad():
            return all_scores(self._method, seen, personal, self._share.places(some), more, items=items)

    def _memory(self, scorer: FadingHistory, clients: Ints) -> Tensor:
        """The memories of clients' histories, from input vectors that are fetched for a few at a time."""
        tables = {INPUTS: self._state.shared[INPUTS]}
        filled = np.cumsum(self._known.lengths[clients]) // self.rows
        parts = np.split(clients, np.flatnonzero(np.diff(filled)) + 1)
        found = []
        for number in range(self.largest(len(parts))):
            histories = self._known.take(parts[number] if number < len(parts) else clients[:0])
            items, place = np.unique(histories.values, return_inverse=True)
            rows = self._owners.fetched(torch.from_numpy(items.astype(np.int64)), tables)[INPUTS]
            inputs = rows.index_select(0, torch.from_numpy(place))
            found.append(scorer.last(inputs, torch.from_numpy(histories.lengths)))
        return torch.cat(found)
