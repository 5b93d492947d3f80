"""One rank's part of a federation whose item tables are divided among the ranks by rows.

A rank holds its own rows of every table, and for the clients that it trains at a time the rows they touch.
Clients are trained shard by shard, as in `distributed`, with the same sums: the result is the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from solera.core.arrays import Ints
from solera.core.choices import ViewDerives, ViewSettles
from solera.core.closed_form import ClosedForm
from solera.core.errors import ConfigError
from solera.core.federated import AnyMethod
from solera.core.fixed_point import FixedPoint
from solera.core.method import Method
from solera.core.parts import Mean
from solera.core.protection import RoundChain
from solera.core.rare_choices import GathersOwnItems, HoldsUsers
from solera.core.spec import Home, Params
from solera.core.tensor_files import Writable, in_file_order
from solera.core.upload import Sums, Upload
from solera.data.ragged import Ragged
from solera.data.sampling import ClientData, sample
from solera.engine.distributed import DistributedSimulation
from solera.engine.exact_totals import ExactTotals, raise_together
from solera.engine.local_training import LocalTraining, Task
from solera.engine.ranks import SHARDS, Ranks
from solera.engine.row_owners import RowOwners
from solera.engine.server import Server
from solera.engine.sharded_scoring import TableSlices
from solera.engine.simulation import Simulation
from solera.engine.state import State

_ROW_WEIGHTS = "row weights"  # beside the names of leaves, which are identifiers
_SAMPLED = 20_000  # clients whose samples are drawn at once to find the rows that they touch


def check_sharded(method: AnyMethod) -> None:
    """Refuse a method whose tables cannot be divided by rows."""
    reason = _why_not(method)
    if reason:
        raise ConfigError(
            f"{method.name!r} cannot run with --shard-tables: {reason}",
            "omit --shard-tables, or use a method that averages item tables, such as fedmf",
        )


def _why_not(method: AnyMethod) -> str:
    if isinstance(method, ClosedForm):
        return "it solves for all items at once"
    view, aggregate = method.view, method.aggregate
    reasons = {
        "weight decay acts on all rows of its tables (decay=all-rows)": any(
            leaf.fades_with for leaf in method.leaves
        ),
        "its server chooses clients by vectors of all users": isinstance(aggregate, HoldsUsers),
        "it has no shared item table": not method.select(home=Home.SHARED, per_item=True),
        f"its server ({aggregate.label}) needs more of a table than single rows": (
            type(aggregate) is not Mean
        ),
        "its clients gather rows of their own items before they train": isinstance(
            method.scorer, GathersOwnItems
        ),
        "its clients use whole item tables, not only the rows they touch": isinstance(
            view, ViewSettles | ViewDerives
        ),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


@dataclass(frozen=True, kw_only=True)
class TouchedTask(Task):
    """The input of local training, with only the rows of tables that the clients touch."""

    touched: Tensor  # ascending item numbers
    rows: Params

    def table_rows(self, name: str, items: Tensor) -> Tensor:
        """Rows of a shared table, or of the initial values of a personal one."""
        return self.rows[name].index_select(0, torch.searchsorted(self.touched, items))


class TouchedTotals(ExactTotals):
    """Totals of some of a round's clients, with only the rows that they touch."""

    def __init__(self, method: Method, n_items: int, clients: int, touched: Tensor) -> None:
        super().__init__(method, n_items, touched.device, clients, len(touched))
        self._touched = touched

    def add(self, upload: Upload, weights: Tensor | None = None) -> None:
        """Add the uploads of a group of clients."""
        super().add(replace(upload, rows=torch.searchsorted(self._touched, upload.rows)), weights)

    def sums(self) -> Sums:
        """The sums without the rows that nobody touched."""
        found = super().sums()
        return found._replace(rows=self._touched[found.rows])


class ShardedSimulation(DistributedSimulation):
    """The clients of one rank, and its rows of the tables. All ranks call every method together.

    `state.shared` has only the own rows of tables, and so have the initial values of personal tables that
    are stored row by row.
    """

    def __init__(
        self, method: Method, data: ClientData, train: LocalTraining, ranks: Ranks, **how: Any
    ) -> None:
        """As in `DistributedSimulation`, but without a coding of downloads."""
        check_sharded(method)
        self.owners = RowOwners(ranks, data.n_items)
        self.own_rows = self.owners.own
        self._shared_tables = [leaf.name for leaf in method.select(home=Home.SHARED, per_item=True)]
        self._fetched: tuple[Tensor, Params] | None = None
        super().__init__(method, data, train, ranks, **how)

    @property
    def rows_held(self) -> dict[str, range]:
        """The own rows, for each shared table."""
        return dict.fromkeys(self._shared_tables, self.owners.own)

    def tables(self, state: State) -> Params:
        """The own rows of all tables that are divided among the ranks."""
        personal = state.personal
        initial = {name: personal.initial[name] for name in personal.rows if name in personal.initial}
        return {name: state.shared[name] for name in self._shared_tables} | initial

    def task(self, round_: int) -> TouchedTask:
        """The input of local training for the clients whose rows were fetched."""
        assert self._fetched is not None
        touched, rows = self._fetched
        context = self._context(round_)
        return TouchedTask(self.method, self.data, self.state, context, self.seed, touched=touched, rows=rows)

    def _totals(self, clients: int, masked: FixedPoint | None) -> ExactTotals:
        """Sums of the own rows."""
        rows = len(self.owners.own)
        return ExactTotals(self.method, self.data.n_items, self.state.device, clients, rows)

    def _collect(
        self, server: Server, round_: int, clients: Ints, protection: RoundChain
    ) -> tuple[float, int]:
        """Train the own clients shard by shard, and send the sums of rows to their owners."""
        share, ranks = self.share, self.share.ranks
        mine = np.flatnonzero(np.isin(share.clients, clients, assume_unique=True))
        told = torch.zeros(2, SHARDS, dtype=torch.float64)  # loss and bytes, each shard in its own place
        diverged = False
        for shard in _shards(ranks):
            some = mine[share.shards[mine] == shard]
            touched = self._touched(round_, some)
            self._fetched = touched, self.owners.fetched(touched, self.tables(self.state))
            totals = TouchedTotals(self.method, self.data.n_items, len(clients), touched)
            part = Server(
                self.method, {}, self.data.n_items, touched.device, totals=totals, heaviest=self.heaviest
            )
            loss, sent = Simulation._collect(self, part, round_, some, protection)
            if len(some):
                told[0, shard], told[1, shard] = loss, sent
            totals.end_shard()
            server.merge(self._delivered(totals.sums()))
            diverged |= totals.diverged
        self._fetched = None
        raise_together(diverged, ranks.add)
        server.reduce(ranks.add, rows=False)
        ranks.add(told)
        return float(told[0].sum()), int(told[1].sum())

    def _touched(self, round_: int, clients: Ints) -> Tensor:
        """The items whose rows some clients train in a round, ascending."""
        found = np.zeros(0, dtype=np.int64)
        for begin in range(0, len(clients), _SAMPLED):
            some = clients[begin : begin + _SAMPLED]
            drawn = sample(self.data, some, self._context(round_).negatives, self.seed, round_)
            found = np.union1d(found, drawn.items.values)
        return torch.from_numpy(found.astype(np.int64, copy=False))

    def _delivered(self, sums: Sums) -> Sums:
        """What all ranks send for the own rows. Other numbers are those of this rank's clients."""
        per_item = {name: sums.changes[name] for name in self._shared_tables if name in sums.changes}
        rows, values = self.owners.delivered(sums.rows, {_ROW_WEIGHTS: sums.row_weights, **per_item})
        return Sums(rows, values.pop(_ROW_WEIGHTS), sums.weight, sums.changes | values)

    def slices(self, known: Ragged) -> TableSlices:
        """Scores of all items, a slice at a time, for clients with these histories."""
        own = known.take(self.share.clients)
        return TableSlices(self, self.owners, self.share, self.tables(self.state), own)

    def gathered(self, shared: Params, personal: Params) -> tuple[Writable, Params]:
        """The tensors of the whole federation on the first rank, tables in pieces; nothing on the others.

        The first rank must write the pieces at once: the others wait until it has taken theirs.
        """
        whole = {name: value for name, value in shared.items() if name not in self._shared_tables}
        tables = {name: shared[name] for name in self._shared_tables}
        found, clients = super().gathered(whole, personal)
        if self.share.ranks.rank:
            for name in in_file_order(tables):
                list(self.owners.collected(tables[name]))
            return {}, {}
        pieces = {name: CollectedTable(self.owners, table) for name, table in tables.items()}
        return {**found, **pieces}, clients


@dataclass(frozen=True)
class CollectedTable:
    """A table on the first rank, of which the pieces come from their owners."""

    owners: RowOwners
    own: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole table."""
        return (self.owners.n_items, *self.own.shape[1:])

    @property
    def dtype(self) -> torch.dtype:
        """The type of its numbers."""
        return self.own.dtype

    def __iter__(self) -> Iterator[Tensor]:
        """The pieces, in order."""
        return self.owners.collected(self.own)


def _shards(ranks: Ranks) -> range:
    """The shards of this rank. All ranks have equally many; numbers from `SHARDS` on have no clients."""
    return range(ranks.rank, -(-SHARDS // ranks.size) * ranks.size, ranks.size)
