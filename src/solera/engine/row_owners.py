"""Tables with one row per item that are divided among ranks, and the exchange of single rows.

Every rank owns a contiguous range of rows, about as many as any other. It can ask the owners for rows, send
rows to them, and go through all rows together with the other ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor

from solera.core.spec import Params
from solera.engine.ranks import Ranks

SLICE_ROWS = 32_768  # of a table that is sent to all ranks at once


class RowOwners:
    """Which rank owns which rows. All ranks call every method together."""

    def __init__(self, ranks: Ranks, n_items: int) -> None:
        self.ranks, self.n_items = ranks, n_items
        self._bounds = [n_items * rank // ranks.size for rank in range(ranks.size + 1)]

    @property
    def own(self) -> range:
        """The rows of this rank."""
        return range(*self._bounds[self.ranks.rank : self.ranks.rank + 2])

    def fetched(self, items: Tensor, own: Params) -> Params:
        """The rows of the given items, ascending, of tables of which this rank has its `own` rows."""
        asked = self._counts(items)
        told = self.ranks.exchanged_counts(asked)
        wanted = self.ranks.exchanged(items, asked, told) - self.own.start
        return {
            name: self.ranks.exchanged(table.index_select(0, wanted), told, asked)
            for name, table in own.items()
        }

    def delivered(self, items: Tensor, values: Params) -> tuple[Tensor, Params]:
        """Send values of the given items, ascending, to their owners. Returns what this rank receives.

        Items are numbered from the first own row. An item appears once for every rank that sent it.
        """
        sent = self._counts(items)
        got = self.ranks.exchanged_counts(sent)
        found = self.ranks.exchanged(items, sent, got) - self.own.start
        return found, {name: self.ranks.exchanged(value, sent, got) for name, value in values.items()}

    def slices(self, own: Params, rows: int = SLICE_ROWS) -> Iterator[tuple[range, Params]]:
        """All rows of tables, at most `rows` at a time, on every rank."""
        for owner, (start, end) in enumerate(pairwise(self._bounds)):
            for begin in range(start, end, rows):
                items = range(begin, min(begin + rows, end))
                yield items, {name: self._shown(table, items, owner) for name, table in own.items()}

    def collected(self, own: Tensor, rows: int = SLICE_ROWS) -> Iterator[Tensor]:
        """All rows of one table on the first rank, at most `rows` at a time. The others give theirs away."""
        pieces = torch.split(own, rows) if len(own) else ()
        if self.ranks.rank:
            for piece in pieces:
                self.ranks.send_to_first(piece)
            return
        yield from pieces
        for owner, (start, end) in enumerate(pairwise(self._bounds)):
            for begin in range(start, end, rows) if owner else ():
                found = own.new_empty((min(rows, end - begin), *own.shape[1:]))
                self.ranks.receive_from(owner, found)
                yield found

    def _shown(self, table: Tensor, items: range, owner: int) -> Tensor:
        if owner == self.ranks.rank:
            values = table[items.start - self.own.start : items.stop - self.own.start].contiguous()
        else:
            values = table.new_empty((len(items), *table.shape[1:]))
        self.ranks.show(values, owner)
        return values

    def _counts(self, items: Tensor) -> list[int]:
        """How many of the ascending items each rank owns."""
        places = torch.searchsorted(items, torch.tensor(self._bounds)).tolist()
        return [end - begin for begin, end in pairwise(places)]
