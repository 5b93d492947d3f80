"""The clients of a federation that this process has: all of them, or those that one of several ranks owns.

Sums over ranks are the same in any order, and so for any number of ranks. Every number is rounded to a
multiple of one power of two, and the multiples are added as 64-bit integers. If there are few items, the sums
of a shard are rounded instead of single numbers, which is faster then.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from solera.core.closed_form import Contribution
from solera.core.context import RoundContext
from solera.core.errors import DivergedError
from solera.core.fixed_point import FixedPoint, rounded
from solera.core.leaf import Params
from solera.core.method import Method
from solera.core.parts import Aggregate
from solera.core.tensor_files import Writable
from solera.core.types import Ints
from solera.core.upload import Totals, add_rows
from solera.data.ragged import Ragged
from solera.data.sampling import ClientData
from solera.engine.ranks import EXACT_BITS, SHARDS, Ranks, added, deal
from solera.engine.row_store import STORED, RowStore
from solera.engine.store import stored_rows
from solera.math.mixing import Factored, factored, sketched

Collected = tuple[float, int]  # the losses of some clients, added up, and the bytes that they sent
_CLIENTS = ""  # no parameter has this name
LARGEST = 2.0**20  # change of a number by one client; PFedRec, tuned, reached 1300
FEW_ITEMS = 16_384
_BITS = 62  # of a sum, without its sign and one to spare


MANY = 500  # clients above which tables are compared by sketches, and weights are factored
_COLUMNS = 4_096  # columns of the clients' tables mixed at once
_SPARSE = 0.05  # fraction of non-zero weights below which zero weights are skipped

Weights = Tensor | Factored


class ClientTables(NamedTuple):
    """The tables [c, n_items, d] of the round's clients after training, and their numbers of items."""

    clients: Ints  # ascending
    sizes: Tensor
    tables: Tensor


class ExactTotals(Totals):
    """Totals of a round with so many clients."""

    DTYPE: ClassVar[torch.dtype] = torch.int64

    def __init__(self, method: Method, n_items: int, device: torch.device, clients: int) -> None:
        super().__init__(method.added_up, n_items, device)
        self._largest = LARGEST * (n_items if method.weighted else 1)
        self._scale = 2.0 ** math.floor(_BITS - math.log2(max(1, clients) * self._largest))
        self.diverged = False  # all ranks raise the error together, see `raise_together`
        self._shard: Params = {}  # what has been added since the last shard ended, if there are few items
        if n_items <= FEW_ITEMS:
            self._shard = {name: torch.zeros_like(v, dtype=torch.float64) for name, v in self._sums.items()}
        self._clients = max(1, clients)

    def _put(self, name: str, rows: Tensor | None, change: Tensor) -> None:
        """Add clients' changes of rows, or of a whole leaf."""
        if self._shard:
            add_rows(self._shard[name], rows, change.double())
        elif self._fits(change, self._largest):
            add_rows(self._sums[name], rows, self._whole(change))

    def end_shard(self) -> None:
        """Round what has been added since the shard before ended."""
        for name, values in self._shard.items():
            if self._fits(values, self._clients * self._largest):
                self._sums[name] += self._whole(values)
            values.zero_()

    def _fits(self, values: Tensor, largest: float) -> bool:
        if not values.numel():
            return False
        low, high = values.aminmax()
        if max(-float(low), float(high)) <= largest:
            return True
        self.diverged = True
        return False

    def _whole(self, values: Tensor) -> Tensor:
        """Numbers as multiples of the power of two."""
        return values.mul(self._scale).round_().to(self.DTYPE)

    def reduce(self, add: Callable[[Tensor], None]) -> None:
        """Add the totals of other ranks."""
        raise_together(self.diverged, add)
        super().reduce(add)
        self._sums = {name: values.double().div_(self._scale) for name, values in self._sums.items()}


def raise_together(diverged: bool, add: Callable[[Tensor], None]) -> None:
    """Raise an error on all ranks if the numbers of any of them diverged."""
    ranks = torch.tensor([float(diverged)])
    add(ranks)
    if float(ranks):
        raise DivergedError(
            f"a client changed a number by more than {LARGEST:,.0f}, or it is not finite",
            "lower the learning rate with -o learning_rate=…",
        )


class Everybody:
    """All clients, in this process."""

    ranks: Ranks | None = None
    adds_up = True  # whether several clients may be trained as one sum

    def __init__(self, sizes: Ints) -> None:
        """`sizes` are all clients' numbers of training items."""
        self.size = len(sizes)
        self.clients: Ints = np.arange(self.size)

    def data(self, whole: ClientData) -> ClientData:
        """The data of the own clients."""
        return whole

    def able(self, own: Ints) -> Ints:
        """All clients of the federation with training items, given the numbers of items of the own ones."""
        return np.flatnonzero(own)

    def places(self, clients: Ints) -> Ints:
        """The places of own clients among all own ones."""
        return clients

    def histories(self, known: Ragged) -> Ragged:
        """The histories of the own clients."""
        return known

    def totals(
        self, method: Method, n_items: int, device: torch.device, clients: int, masked: FixedPoint | None
    ) -> Totals:
        """Empty sums for a round of so many clients."""
        return Totals(method.added_up, n_items, device, masked)

    def collect(self, totals: Totals, clients: Ints, collect: Callable[[Ints], Collected]) -> Collected:
        """Let `collect` train the own ones of the clients and add what they send to the totals."""
        return collect(clients)

    def restored(self, tensors: Params, shared: Params, tailored: frozenset[str]) -> tuple[Params, Params]:
        """The own part of a federation's saved state, as shared and personal tensors."""
        return shared, tensors

    def gathered(self, shared: Params, personal: Params, tailored: frozenset[str]) -> tuple[Writable, Params]:
        """The tensors of the whole federation; nothing on ranks other than the first."""
        return shared, personal

    def rounding(self, peaks: Callable[[], dict[str, float]], clients: int) -> Rounding | None:
        """What rounds contributions to a one-round method, given the largest of the own clients' numbers."""
        return None

    def any(self, said: bool) -> bool:
        """Whether any rank says so."""
        return said

    def counted(self, number: int) -> int:
        """The sum over all ranks."""
        return number

    def solved(self, add_on_first: Callable[[Ranks], None], solve: Callable[[], Params]) -> Params:
        """What `solve` makes of the totals of the whole federation, once they are added on the first rank."""
        return solve()

    def mix(self, aggregate: Aggregate, sent: ClientTables, into: Tensor, context: RoundContext) -> Tensor:
        """Mix a table for each of the round's clients: the rows of `into`. Returns the mixing weights."""
        sketches = aggregate.sketchable and len(sent.clients) > MANY
        compared = sketched(sent.tables) if sketches else sent.tables
        mixing = aggregate.mixing(compared, sent.sizes, context)
        weights = _prepared(mixing.to(sent.tables.dtype), of_sketches=sketches)
        tables, target = sent.tables.flatten(1), into.flatten(1)
        who = torch.from_numpy(sent.clients).to(into.device)
        for columns in _column_pieces(tables):
            target[:, columns].index_copy_(0, who, weights @ tables[:, columns])
        return mixing

    def tell(self, aggregate: Aggregate, clients: Ints, into: Tensor, context: RoundContext) -> None:
        """Set `into` [n_clients, 1] to 1 for clients with a new table, else 0. Absent clients have none."""
        told = aggregate.renewed(len(clients), context)
        into.zero_()[torch.from_numpy(clients)] = told.to(into).unsqueeze(-1)


Rounding = Callable[[Contribution], Contribution]


class Share(Everybody):
    """The clients that one rank owns. All ranks call every method together, in the same order."""

    ranks: Ranks
    adds_up = False  # sums of batches depend on who is in them, if only by rounding

    def __init__(self, ranks: Ranks, sizes: Ints) -> None:
        super().__init__(sizes)
        shards = deal(sizes, SHARDS)
        self.ranks = ranks
        self.clients = np.flatnonzero(shards % ranks.size == ranks.rank)  # ascending, of the federation
        self.shards = shards[self.clients]  # the shard of each
        self._able = np.flatnonzero(sizes)

    def data(self, whole: ClientData) -> ClientData:
        own = whole.train.take(self.clients), whole.excluded.take(self.clients)
        return ClientData(*own, whole.n_items, whole.mass, self.clients)

    def able(self, own: Ints) -> Ints:
        return self._able

    def places(self, clients: Ints) -> Ints:
        return np.searchsorted(self.clients, clients)

    def histories(self, known: Ragged) -> Ragged:
        return known.take(self.clients)

    def totals(
        self, method: Method, n_items: int, device: torch.device, clients: int, masked: FixedPoint | None
    ) -> ExactTotals:
        """Sums that are the same for any number of ranks."""
        return ExactTotals(method, n_items, device, clients)

    def collect(self, totals: Totals, clients: Ints, collect: Callable[[Ints], Collected]) -> Collected:
        """Collect shard by shard, and add what all ranks have."""
        mine = np.flatnonzero(np.isin(self.clients, clients, assume_unique=True))
        told = torch.zeros(2, SHARDS, dtype=torch.float64)  # loss and bytes, each shard in its own place
        for shard in np.unique(self.shards[mine]).tolist():
            told[:, shard] = torch.tensor(collect(mine[self.shards[mine] == shard]))
            totals.end_shard()
        totals.reduce(self.ranks.add)
        self.ranks.add(told)
        return float(told[0].sum()), int(told[1].sum())

    def restored(self, tensors: Params, shared: Params, tailored: frozenset[str]) -> tuple[Params, Params]:
        own = torch.from_numpy(self.clients)
        return shared | {name: shared[name][own] for name in tailored}, _of_own(tensors, self.clients)

    def gathered(self, shared: Params, personal: Params, tailored: frozenset[str]) -> tuple[Writable, Params]:
        of_clients = {name: shared[name] for name in tailored}
        own = {_CLIENTS: torch.from_numpy(self.clients)}
        parts = self.ranks.gathered_by_first(own | personal | of_clients)
        if not parts:
            return {}, {}
        found = _joined(parts)
        return shared | {name: found.pop(name) for name in of_clients}, found

    def rounding(self, peaks: Callable[[], dict[str, float]], clients: int) -> Rounding:
        """Round every number to a multiple of one power of two, so that the total is exact in any order."""
        own = peaks()
        found = self.ranks.largest(torch.tensor(list(own.values()), dtype=torch.float64)).tolist()
        bits = {
            name: EXACT_BITS - math.frexp(peak * clients)[1] for name, peak in zip(own, found, strict=True)
        }

        def change(part: Contribution) -> Contribution:
            blocks = {
                name: rounded(torch.from_numpy(block), bits[name]).numpy()
                for name, block in part.blocks.items()
            }
            return Contribution(part.items, blocks)

        return change

    def any(self, said: bool) -> bool:
        return self.ranks.any(said)

    def counted(self, number: int) -> int:
        total = torch.tensor([number])
        self.ranks.add(total)
        return int(total)

    def solved(self, add_on_first: Callable[[Ranks], None], solve: Callable[[], Params]) -> Params:
        """Add the totals on the first rank, which solves for all."""
        add_on_first(self.ranks)
        return self.ranks.from_first(None if self.ranks.rank else solve())

    def mix(self, aggregate: Aggregate, sent: ClientTables, into: Tensor, context: RoundContext) -> Tensor:
        """As in one process, for the own clients, which have their places among all own ones as numbers.

        Ranks exchange sketches and sums if there are many clients, otherwise their tables. Rows are computed
        shard by shard, so that the result does not depend on the number of ranks.
        """
        ranks, tables = self.ranks, sent.tables.flatten(1)
        everybody = self._of_all(torch.from_numpy(self.clients[sent.clients])).numpy()
        order = torch.from_numpy(np.argsort(everybody))
        sizes = self._of_all(sent.sizes)[order]
        own = np.searchsorted(np.sort(everybody), self.clients[sent.clients])
        sketches = aggregate.sketchable and len(everybody) > MANY
        mine = sketched(sent.tables) if sketches else sent.tables
        mixing = aggregate.mixing(self._of_all(mine)[order], sizes, context)
        weights = _prepared(mixing.to(tables.dtype), of_sketches=sketches)
        shards = [
            (torch.from_numpy(own[places]), torch.from_numpy(places))
            for places in self._by_shard(sent.clients)
        ]
        target, who = into.flatten(1), torch.from_numpy(sent.clients)
        for columns in _column_pieces(tables):
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
        mine = self.clients[clients]
        everybody = np.sort(self._of_all(torch.from_numpy(mine)).numpy())
        told = aggregate.renewed(len(everybody), context)[torch.from_numpy(np.searchsorted(everybody, mine))]
        into.zero_()[torch.from_numpy(clients)] = told.to(into).unsqueeze(-1)

    def _of_all(self, rows: Tensor) -> Tensor:
        """The rows of all ranks, rank after rank."""
        return torch.cat([each["rows"] for each in self.ranks.gathered({"rows": rows})])

    def _by_shard(self, clients: Ints) -> list[Ints]:
        shards = self.shards[clients]
        return [np.flatnonzero(shards == shard) for shard in np.unique(shards)]


def share_of(ranks: Ranks | None, sizes: Ints) -> Everybody:
    """The clients that this process has, given every client's number of training items."""
    return Share(ranks, sizes) if ranks else Everybody(sizes)


def _of_own(personal: Params, own: Ints) -> Params:
    """The part of a federation's personal tensors that belongs to some clients."""
    index, stored = torch.from_numpy(own), stored_rows(personal)
    found = {name: value[index] for name, value in personal.items() if name.rpartition("/")[0] not in stored}
    for name in stored:
        clients, counts = personal[f"{name}/clients"], personal[f"{name}/counts"]
        mine = torch.isin(clients, index)
        found[f"{name}/clients"] = torch.searchsorted(index, clients[mine])
        found[f"{name}/counts"] = counts[mine]
        if f"{name}/items" in personal:
            rows = mine.repeat_interleave(counts)
            found |= {f"{name}/{part}": personal[f"{name}/{part}"][rows] for part in ("items", "values")}
    return found


def _joined(parts: list[Params]) -> Params:
    """Personal tensors of all ranks as those of one federation."""
    numbers = [personal[_CLIENTS] for personal in parts]
    order = torch.argsort(torch.cat(numbers))
    stored = stored_rows(parts[0])
    found = {
        name: torch.cat([personal[name] for personal in parts])[order]
        for name in parts[0]
        if name != _CLIENTS and name.rpartition("/")[0] not in stored
    }
    for name in stored:
        rows = RowStore(len(order), torch.device("cpu"))
        for own, personal in zip(numbers, parts, strict=True):
            if f"{name}/items" in personal:
                clients, counts, items, values = (personal[f"{name}/{part}"] for part in STORED)
                rows.put(own[clients], items, counts, values)
        found |= {f"{name}/{part}": value for part, value in rows.tensors().items()}
    return found


def _prepared(mixing: Tensor, *, of_sketches: bool) -> Weights:
    """Mixing weights in the form in which they are applied fastest."""
    if int(mixing.count_nonzero()) < _SPARSE * mixing.numel():
        return mixing.to_sparse()
    return (factored(mixing, of_sketches=of_sketches) if len(mixing) > MANY else None) or mixing


def _column_pieces(tables: Tensor) -> list[slice]:
    """The columns of tables, some at a time."""
    return [slice(start, start + _COLUMNS) for start in range(0, tables.shape[1], _COLUMNS)]
