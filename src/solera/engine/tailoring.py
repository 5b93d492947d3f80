"""Mix a table for every client from all clients' tables, in one process or on several ranks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from solera.core.context import RoundContext
from solera.core.parts import Aggregate
from solera.core.types import Ints
from solera.engine.ranks import Ranks, added
from solera.math.mixing import Factored, factored, sketched

MANY = 500  # clients above which tables are compared by sketches, and weights are factored
_COLUMNS = 4_096  # columns of the clients' tables mixed at once
_SPARSE = 0.05  # fraction of non-zero weights below which zero weights are skipped

Weights = Tensor | Factored


class ClientTables(NamedTuple):
    """The tables [c, n_items, d] of the round's clients after training, and their numbers of items."""

    clients: Ints  # ascending
    sizes: Tensor
    tables: Tensor


class Tailor:
    """Mixes the tables of clients that are all in this process."""

    def mix(self, aggregate: Aggregate, sent: ClientTables, into: Tensor, context: RoundContext) -> Tensor:
        """Set the rows `sent.clients` of `into` to their mixed tables. Returns the mixing weights."""
        many = len(sent.clients) > MANY
        compared = sketched(sent.tables) if many and aggregate.sketchable else sent.tables
        mixing = aggregate.mixing(compared, sent.sizes, context)
        weights = _prepared(mixing.to(sent.tables.dtype))
        tables, target = sent.tables.flatten(1), into.flatten(1)
        who = torch.from_numpy(sent.clients).to(into.device)
        for columns in _columns(tables):
            target[:, columns].index_copy_(0, who, weights @ tables[:, columns])
        return mixing

    def tell(self, aggregate: Aggregate, clients: Ints, into: Tensor, context: RoundContext) -> None:
        """Set `into` [n_clients, 1] to 1 for clients with a new table, else 0. Absent clients have none."""
        told = aggregate.renewed(len(clients), context)
        into.zero_()[torch.from_numpy(clients)] = told.to(into).unsqueeze(-1)


class SharedTailor(Tailor):
    """Mixes the tables of clients on several ranks.

    Ranks exchange sketches and sums if there are many clients, otherwise their tables. Rows are computed
    shard by shard, so that the result does not depend on the number of ranks.
    """

    def __init__(self, ranks: Ranks, clients: Ints, shards: Ints) -> None:
        """`clients` are the numbers of the own ones in the federation, `shards` the shard of each."""
        self._ranks, self._clients, self._shards = ranks, clients, shards

    def mix(self, aggregate: Aggregate, sent: ClientTables, into: Tensor, context: RoundContext) -> Tensor:
        """As in one process, for the own clients, which have their places among all own ones as numbers."""
        ranks, tables = self._ranks, sent.tables.flatten(1)
        everybody = self._of_all(torch.from_numpy(self._clients[sent.clients])).numpy()
        order = torch.from_numpy(np.argsort(everybody))
        sizes = self._of_all(sent.sizes)[order]
        own = np.searchsorted(np.sort(everybody), self._clients[sent.clients])
        many = len(everybody) > MANY
        mine = sketched(sent.tables) if many and aggregate.sketchable else sent.tables
        mixing = aggregate.mixing(self._of_all(mine)[order], sizes, context)
        weights = _prepared(mixing.to(tables.dtype))
        shards = [
            (torch.from_numpy(own[places]), torch.from_numpy(places))
            for places in self._by_shard(sent.clients)
        ]
        target, who = into.flatten(1), torch.from_numpy(sent.clients)
        for columns in _columns(tables):
            part = tables[:, columns]
            if isinstance(weights, Factored):
                parts = [weights.right[:, rows] @ part[at] for rows, at in shards]
                total = added(ranks, parts or [weights.right.new_zeros(len(weights.right), part.shape[1])])
                mixed = [
                    torch.addmm(weights.own[rows, None] * part[at], weights.left[rows], total.to(part.dtype))
                    for rows, at in shards
                ]
            else:
                whole = self._of_all(part)[order]
                mixed = [weights.index_select(0, rows) @ whole for rows, _ in shards]
            for (_, at), values in zip(shards, mixed, strict=True):
                target[:, columns].index_copy_(0, who[at], values)
        return mixing

    def tell(self, aggregate: Aggregate, clients: Ints, into: Tensor, context: RoundContext) -> None:
        """As in one process, for the own clients."""
        mine = self._clients[clients]
        everybody = np.sort(self._of_all(torch.from_numpy(mine)).numpy())
        told = aggregate.renewed(len(everybody), context)[torch.from_numpy(np.searchsorted(everybody, mine))]
        into.zero_()[torch.from_numpy(clients)] = told.to(into).unsqueeze(-1)

    def _of_all(self, rows: Tensor) -> Tensor:
        """The rows of all ranks, rank after rank."""
        return torch.cat([each["rows"] for each in self._ranks.gathered({"rows": rows})])

    def _by_shard(self, clients: Ints) -> list[Ints]:
        shards = self._shards[clients]
        return [np.flatnonzero(shards == shard) for shard in np.unique(shards)]


def _prepared(mixing: Tensor) -> Weights:
    """Mixing weights in the form in which they are applied fastest."""
    if int(mixing.count_nonzero()) < _SPARSE * mixing.numel():
        return mixing.to_sparse()
    return (factored(mixing) if len(mixing) > MANY else None) or mixing


def _columns(tables: Tensor) -> list[slice]:
    return [slice(start, start + _COLUMNS) for start in range(0, tables.shape[1], _COLUMNS)]
