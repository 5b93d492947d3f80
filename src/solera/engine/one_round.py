"""Simulation of a one-round method: sum over clients' histories, then solve."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from math import prod

import numpy as np
import torch
from torch import Tensor

from solera.core.closed_form import NEIGHBOURS, WEIGHTS, Channels, ClosedForm, Contribution
from solera.core.fixed_point import FixedPoint, lengths
from solera.core.leaf import Params
from solera.core.protection import SumStep
from solera.core.sparse import Rows, Run, SparseTotal
from solera.core.tensor_files import Writable
from solera.core.types import Floats, Ints
from solera.data.ragged import Ragged, ages, days_of_all, gaps
from solera.data.sampling import ClientData
from solera.engine.ranks import Ranks
from solera.engine.shares import share_of
from solera.engine.simulation import RoundResult
from solera.math.linear import memory_scores
from solera.math.sparse_ridge import Neighbours

Cover = Callable[[dict[str, Tensor]], None]


def sum_for(method: ClosedForm, n_items: int) -> Sum:
    """An empty total, dense or sparse as the method has it."""
    return SparseSum(method, n_items) if method.neighbours else DenseSum(method, n_items)


class Sum:
    """The total of the clients' sums."""

    def __init__(self, method: ClosedForm, n_items: int) -> None:
        self._method, self._n_items = method, n_items

    def add(self, part: Contribution) -> None:
        """Add the contribution of one client, or of several together."""
        raise NotImplementedError

    def of(self, items: Ints) -> Contribution:
        """The total as a contribution. All entries outside the given items must be zero."""
        raise NotImplementedError

    def solve(self, device: torch.device, dtype: torch.dtype, cover: Cover | None = None) -> Params:
        """Solve for the model, after applying `cover` if given. The sums are used up."""
        raise NotImplementedError

    def add_on_first(self, ranks: Ranks) -> None:
        """Add the totals of all ranks on the first one. Those of the others are used up."""
        raise NotImplementedError

    def grown(self, n_items: int) -> Sum:
        """A copy for so many items; the new ones come last."""
        larger = type(self)(self._method, n_items)
        larger.restore(self.tensors())
        return larger

    def tensors(self) -> Params:
        """The totals as named tensors, ready to be saved."""
        raise NotImplementedError

    def restore(self, tensors: Params) -> None:
        """Add the output of `tensors`."""
        raise NotImplementedError


class DenseSum(Sum):
    """The total in matrices of items × items. A symmetric sum only fills the upper channels."""

    def __init__(self, method: ClosedForm, n_items: int) -> None:
        super().__init__(method, n_items)
        self._totals = {name: np.zeros(c.shape(n_items)) for name, c in method.update.sums.items()}

    def add(self, part: Contribution) -> None:
        for name, block in part.blocks.items():
            channels, total = self._method.update.sums[name], self._totals[name]
            if channels.width:
                total[:, part.items] += block
            else:
                _add_pairs(total, channels, part.items, block)

    def of(self, items: Ints) -> Contribution:
        sums = self._method.update.sums
        rows = {name: total[:, items] for name, total in self._totals.items()}
        return Contribution(
            items, {name: each if sums[name].width else each[..., items] for name, each in rows.items()}
        )

    def solve(self, device: torch.device, dtype: torch.dtype, cover: Cover | None = None) -> Params:
        for name, total in self._totals.items():
            _mirror(total, self._method.update.sums[name])
        matrices = {
            name: torch.from_numpy(total.reshape(total.shape[0] * self._n_items, -1)).to(device)
            for name, total in self._totals.items()
        }
        if cover:
            cover(matrices)
        aggregate = self._method.aggregate
        weights = aggregate.solve(matrices, self._method.prior).to(dtype)
        return {WEIGHTS: weights.contiguous()}  # scoring reads rows, and would copy all of them every time

    def add_on_first(self, ranks: Ranks) -> None:
        for total in self._totals.values():
            ranks.add_on_first(torch.from_numpy(total))

    def tensors(self) -> Params:
        return {name: torch.from_numpy(total) for name, total in self._totals.items()}

    def restore(self, tensors: Params) -> None:
        for name, total in self._totals.items():
            found = tensors[name].numpy()
            total[tuple(slice(size) for size in found.shape)] += found


class SparseSum(Sum):
    """The total in sparse matrices, with sources and targets as in `math.sparse_ridge`.

    Only the upper half of a symmetric sum is held. Any other sum is held transposed, target by target.
    """

    def __init__(self, method: ClosedForm, n_items: int) -> None:
        super().__init__(method, n_items)
        self.totals = {name: _empty(each, n_items) for name, each in method.update.sums.items()}

    def add(self, part: Contribution) -> None:
        for name, block in part.blocks.items():
            channels = self._method.update.sums[name]
            sources, targets = (_numbers(part.items, each) for each in channels[:2])
            square = block.transpose(1, 0, 3, 2).reshape(len(sources), len(targets))
            wanted = square != 0
            if channels.symmetric:
                wanted &= sources[:, None] <= targets
            row, column = np.nonzero(wanted)
            places = (sources[row], targets[column])
            self.totals[name].add(*(places if channels.symmetric else places[::-1]), square[row, column])

    def of(self, items: Ints) -> Contribution:
        sums, blocks, ordered = self._method.update.sums, dict[str, Floats](), np.sort(items)
        for name, total in self.totals.items():
            channels, entries = sums[name], total.take()
            rows = np.repeat(np.arange(total.rows), np.diff(entries.offsets))
            sources, targets = (_numbers(ordered, each) for each in channels[:2])
            source, target = (rows, entries.columns) if channels.symmetric else (entries.columns, rows)
            square = np.zeros((len(sources), len(targets)))
            row, column = np.searchsorted(sources, source), np.searchsorted(targets, target)
            square[row, column] = entries.values
            if channels.symmetric:
                square[column, row] = entries.values
            m = len(ordered)
            blocks[name] = square.reshape(m, channels.rows, m, channels.columns).transpose(1, 0, 3, 2)
        return Contribution(ordered, blocks)

    def solve(self, device: torch.device, dtype: torch.dtype, cover: Cover | None = None) -> Params:
        assert cover is None  # noise would fill the matrices; refused beforehand
        aggregate = self._method.aggregate
        totals: dict[str, Rows] = {name: total.take() for name, total in self.totals.items()}
        ids, values = aggregate.solve_sparse(totals)
        return {NEIGHBOURS: ids.to(device), WEIGHTS: values.to(device, dtype)}

    def add_on_first(self, ranks: Ranks) -> None:
        for total in self.totals.values():
            own = total.whole()
            sent = {"keys": torch.from_numpy(own.keys), "values": torch.from_numpy(own.values)}
            for found in ranks.sent_to_first(sent):
                total.add_run(Run(found["keys"].numpy(), found["values"].numpy()))

    def tensors(self) -> Params:
        """The totals as named tensors, without entries that have become zero."""
        found: Params = {}
        for name, total in self.totals.items():
            own = total.whole()
            filled = own.values != 0
            rows, columns = np.divmod(own.keys[filled], total.columns)
            parts = {"rows": rows, "columns": columns, "values": own.values[filled]}
            found |= {f"{name}/{part}": torch.from_numpy(each) for part, each in parts.items()}
        return found

    def restore(self, tensors: Params) -> None:
        for name, total in self.totals.items():
            total.add(*(tensors[f"{name}/{part}"].numpy() for part in ("rows", "columns", "values")))


def _add_pairs(total: Floats, channels: Channels, items: Ints, block: Floats) -> None:
    """Add a block at the pairs of some items. `np.add.at` is fast if indices are flat."""
    n_items, items = total.shape[1], items.astype(np.int64)
    places = (items[:, None] * (channels.columns * n_items) + items).ravel()
    for row in range(channels.rows):
        for column in range(row if channels.symmetric else 0, channels.columns):
            np.add.at(total[row].reshape(-1)[column * n_items :], places, block[row, :, column].ravel())


def _empty(channels: Channels, n_items: int) -> SparseTotal:
    sources, targets = channels.rows * n_items, channels.columns * n_items
    rows, columns = (sources, targets) if channels.symmetric else (targets, sources)
    return SparseTotal(rows, columns, np.float32 if channels.whole else np.float64)


def _numbers(items: Ints, channels: int) -> Ints:
    """The numbers of all channels of some items, as in `math.sparse_ridge`."""
    numbers: Ints = (items.astype(np.int64)[:, None] * channels + np.arange(channels)).ravel()
    return numbers


def clipped(part: Contribution, limit: float) -> Contribution:
    """A user's contribution with every number clipped."""
    return Contribution(part.items, {n: np.clip(block, -limit, limit) for n, block in part.blocks.items()})


def rounded(part: Contribution, masked: FixedPoint) -> Contribution:
    """A contribution clipped and rounded as under secure aggregation."""
    blocks = clipped(part, masked.clip).blocks
    return Contribution(
        part.items, {n: masked.rounded(torch.from_numpy(block)).numpy() for n, block in blocks.items()}
    )


def _mirror(total: Floats, channels: Channels) -> None:
    """Fill the lower channels of a symmetric total from the upper ones."""
    if channels.symmetric:
        for row in range(channels.rows):
            for column in range(row):
                total[row, :, column] = total[column, :, row].T


Change = Callable[[Contribution], Contribution]
_LOG = logging.getLogger(__name__)
_TOLD_EVERY = 1000  # clients between two calls of `on_clients`


@dataclass(frozen=True)
class Solution:
    """The state of a one-round method: the solved matrix. Clients keep only their history."""

    shared: Params = field(default_factory=dict)

    def copy(self) -> Solution:
        """The same object, because nothing changes it."""
        return self

    def tensors(self) -> tuple[Params, Params]:
        """Tensors of the server and of the clients."""
        return self.shared, {}

    def writable(self) -> tuple[Params, Writable]:
        """The same."""
        return self.tensors()


class OneRound:
    """All clients and the server of one federation."""

    def __init__(
        self,
        method: ClosedForm,
        data: ClientData,
        *,
        device: torch.device,
        dtype: torch.dtype,
        secure_aggregation: bool = False,
        protection: SumStep | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        """With `ranks`, this process has only some of the clients; the first rank solves for all.

        Contributions and their total go through `protection`, if it is given."""
        method.check(data.n_items)
        self.method, self.data = method, data
        self.secure_aggregation = secure_aggregation
        self._device, self._dtype = device, dtype
        self.share = share_of(ranks, data.train.lengths)
        self.protection = protection
        self.state = Solution()
        self.keeps_totals = False  # after a round, so that `update` can go on from `totals`
        self.totals: Sum | None = None
        self.on_clients: Callable[[int, int], None] | None = None  # called with the clients done, and all

    def run_round(self, round_: int) -> RoundResult:
        """Add up the clients' sums and solve for the model."""
        _ = self.method.prior  # refuses options whose attributes are not known
        _warn_of_memory(self.method, self.data.n_items)
        clients = np.flatnonzero(self.data.train.lengths)
        masked = (
            FixedPoint.of(self.method, self.data.n_items, places=len(clients))
            if self.secure_aggregation
            else None
        )
        own = np.intersect1d(clients, self.share.clients, assume_unique=True)
        change = partial(rounded, masked=masked) if masked else self._rounding(own, len(clients))
        totals, sent = self._collect(own, change)
        sent = self.share.counted(sent)
        if self.protection and self.protection.dense:
            sent = len(clients) * sum(map(self._whole, self.method.update.sums.values()))
        if self.keeps_totals:
            self.totals = totals.grown(self.data.n_items)
        begin = time.perf_counter()
        cover = self._cover(len(clients))
        self.state = Solution(
            self.share.solved(totals.add_on_first, lambda: totals.solve(self._device, self._dtype, cover))
        )
        seconds = time.perf_counter() - begin
        up, down = 4.0 * sent / len(clients), 4.0 * numbers(self.state.shared)
        if masked:
            up = sum(lengths(self.method, self.data.n_items).values()) * masked.bits / 8
        return RoundResult(round_, len(clients), 0.0, up, down, seconds)

    def update(self, earlier: OneRound, changed: Ints) -> None:
        """Solve from the totals of an earlier federation, whose other clients have the same histories.

        What the `changed` clients had sent is taken out of the totals and what they send now is added.
        Clients and items that are new come after the earlier ones.
        """
        assert earlier.totals is not None
        totals = earlier.totals.grown(self.data.n_items)
        for client in changed.tolist():
            if client < earlier.data.n_clients and earlier.data.train.lengths[client]:
                before = contribution_of(self.method, earlier.data.train, client)
                totals.add(Contribution(before.items, {n: -block for n, block in before.blocks.items()}))
            totals.add(contribution_of(self.method, self.data.train, client))
        self.totals = totals
        solved = totals.grown(self.data.n_items).solve(self._device, self._dtype)
        self.state = Solution(solved)

    def _collect(self, clients: Ints, change: Change | None) -> tuple[Sum, int]:
        """The total of the clients' contributions, each changed, and how many numbers they send."""
        totals, sent = sum_for(self.method, self.data.n_items), 0
        for done, client in enumerate(clients):
            if self.on_clients and done % _TOLD_EVERY == 0:
                self.on_clients(done, len(clients))
            contribution = contribution_of(self.method, self.data.train, int(client))
            if self.protection:
                contribution = self.protection.take(contribution)
            totals.add(change(contribution) if change else contribution)
            sent += contribution.numbers(self.method.update.sums)
        return totals, sent

    def _rounding(self, own: Ints, clients: int) -> Change | None:
        """What makes the total exact for any number of ranks; None if it is anyway, as of whole numbers."""
        sums = self.method.update.sums
        if all(each.whole for each in sums.values()):
            return None

        def peaks() -> dict[str, float]:
            found = dict.fromkeys(sums, 0.0)
            for client in own:
                for name, block in contribution_of(self.method, self.data.train, int(client)).blocks.items():
                    found[name] = max(found[name], float(np.abs(block).max(initial=0.0)))
            return found

        return self.share.rounding(peaks, clients)

    def _whole(self, sums: Channels) -> int:
        """How many numbers a client sends for a whole matrix."""
        numbers, rows = prod(sums.shape(self.data.n_items)), sums.rows * self.data.n_items
        return (numbers + rows) // 2 if sums.symmetric else numbers

    def _cover(self, clients: int) -> Cover | None:
        """The server half of the protection for a total over this many clients, or None."""
        if self.protection is None:
            return None
        return partial(self.protection.release, channels=self.method.update.sums, clients=clients)

    def serve(self, known: Ragged) -> Callable[[Ints], Tensor]:
        """A function that scores all items for clients with these histories, oldest first: [·, n_items]."""
        sparse = self._neighbours(self.state.shared)
        if sparse:
            return lambda clients: self._sparse_scores(sparse, known.take(clients))
        weights = self.state.shared[WEIGHTS]

        def scores(clients: Ints) -> Tensor:
            histories = known.take(clients)
            memory = memory_weights(self.method, histories)
            return memory_scores(weights, histories.offsets, histories.values, memory)

        return scores

    def _neighbours(self, shared: Params) -> Neighbours | None:
        return Neighbours.of(shared, self.method.scorer.channels, self._dtype)

    def _sparse_scores(self, weights: Neighbours, histories: Ragged) -> Tensor:
        """Scores [clients, n_items]. A repeated item is counted every time."""
        channels = self.method.scorer.channels
        sources = histories.values[:, None].astype(np.int64) * channels + np.arange(channels)
        memory = torch.from_numpy(memory_weights(self.method, histories).T.ravel())
        rows = histories.rows.repeat(channels)
        return weights.scores(rows, sources.ravel(), memory, len(histories))

    def restore(self, shared: Params, personal: Params) -> None:
        """Continue from a saved state."""
        self._neighbours(shared)  # checks them
        self.state = Solution({name: value.to(self._device) for name, value in shared.items()})


def contribution_of(method: ClosedForm, histories: Ragged, client: int) -> Contribution:
    """What a client computes from its history."""
    if not method.timed:
        return method.update.of(histories.row(client))
    days_of_all(histories)
    return method.update.of(histories.row(client), histories.days_of(client))


def memory_weights(method: ClosedForm, histories: Ragged) -> Floats:
    """Weights [channels, …] of all items of these histories in their memories."""
    return method.scorer.weights(ages(histories), gaps(histories) if method.timed else None)


def numbers(shared: Params) -> int:
    """How many numbers a device downloads: of a sparse model, the neighbours that have a weight."""
    if NEIGHBOURS in shared:
        return 2 * int(shared[WEIGHTS].count_nonzero())
    return shared[WEIGHTS].numel()


def _warn_of_memory(method: ClosedForm, n_items: int) -> None:
    """Log a warning if sums and solution take more than half of the free memory."""
    needed = method.bytes_needed(n_items)
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not on every system
        return
    if needed > free / 2:
        _LOG.warning(
            "%s with %s items takes about %.1f GiB of memory; %.1f GiB are free",
            method.name,
            f"{n_items:,}",
            needed / 2**30,
            free / 2**30,
        )
