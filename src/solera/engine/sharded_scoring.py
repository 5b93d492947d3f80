"""Scores of all items when every rank has only some rows of the tables.

The owners show their rows to all ranks, a slice at a time, and every rank scores them for its own clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from solera.core.arrays import Ints
from solera.core.history import INPUTS, MEMORY, FadingHistory, remembers
from solera.core.item_slices import ItemSlice, ItemSlices
from solera.core.spec import Params
from solera.data.ragged import Ragged
from solera.engine.row_owners import SLICE_ROWS
from solera.engine.scoring import all_scores

if TYPE_CHECKING:
    from solera.engine.sharded import ShardedSimulation


class TableSlices(ItemSlices):
    """The items of a sharded federation in slices, with scores for this rank's clients."""

    rows = SLICE_ROWS

    def __init__(self, simulation: ShardedSimulation, known: Ragged) -> None:
        """`known` are the histories of the own clients."""
        self._simulation, self._known = simulation, known

    def largest(self, number: int) -> int:
        """The largest number of all ranks."""
        return int(self._simulation.owners.ranks.largest(torch.tensor(number)))

    def serve(self, users: Ints) -> Callable[[], Iterator[ItemSlice]]:
        """A function that goes through all items once, with scores for these users, ascending numbers."""
        simulation = self._simulation
        scorer = simulation.method.scorer
        memory = self._memory(scorer, simulation.share.places(users)) if remembers(scorer) else None
        tables = simulation.tables(simulation.state)
        if memory is not None:
            del tables[INPUTS]  # memories have all of it that scores need

        def slices() -> Iterator[ItemSlice]:
            for items, rows in simulation.owners.slices(tables, self.rows):
                yield ItemSlice(items, partial(self._scores, items, rows, users, memory))

        return slices

    def _scores(self, items: range, rows: Params, users: Ints, memory: Tensor | None, some: Ints) -> Tensor:
        """Scores of some of the users."""
        simulation = self._simulation
        shared, personal = simulation.state.shared, simulation.state.personal
        more = {name: rows[name] for name in rows if name not in shared}
        if memory is not None:
            more[MEMORY] = memory[torch.from_numpy(np.searchsorted(users, some))]
        seen = {name: rows.get(name, value) for name, value in shared.items() if name != INPUTS}
        with torch.no_grad():
            return all_scores(
                simulation.method, seen, personal, simulation.share.places(some), more, items=items
            )

    def _memory(self, scorer: FadingHistory, clients: Ints) -> Tensor:
        """The memories of clients' histories, from input vectors that are fetched for a few at a time."""
        simulation = self._simulation
        tables = {INPUTS: simulation.state.shared[INPUTS]}
        filled = np.cumsum(self._known.lengths[clients]) // self.rows
        parts = np.split(clients, np.flatnonzero(np.diff(filled)) + 1)
        found = []
        for number in range(self.largest(len(parts))):
            histories = self._known.take(parts[number] if number < len(parts) else clients[:0])
            items, place = np.unique(histories.values, return_inverse=True)
            rows = simulation.owners.fetched(torch.from_numpy(items.astype(np.int64)), tables)[INPUTS]
            inputs = rows.index_select(0, torch.from_numpy(place))
            found.append(scorer.last(inputs, torch.from_numpy(histories.lengths)))
        return torch.cat(found)
