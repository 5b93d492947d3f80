"""Totals of the clients' sums, from which the server of a one-round method solves for its model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from solera.core.arrays import Floats, Ints
from solera.core.closed_form import NEIGHBOURS, WEIGHTS, Channels, ClosedForm, Contribution
from solera.core.fixed_point import FixedPoint
from solera.core.sparse import Rows, Run, SparseTotal
from solera.core.spec import Params
from solera.engine.ranks import Ranks

Cover = Callable[[dict[str, Tensor]], None]


def sum_for(method: ClosedForm, n_items: int) -> Sum:
    """An empty total, dense or sparse as the method has it."""
    return SparseSum(method, n_items) if method.neighbours else DenseSum(method, n_items)


class Sum:
    """The total of the clients' sums."""

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
        raise NotImplementedError

    def tensors(self) -> Params:
        """The totals as named tensors, ready to be saved."""
        raise NotImplementedError

    def restore(self, tensors: Params) -> None:
        """Add the output of `tensors`."""
        raise NotImplementedError


class DenseSum(Sum):
    """The total in matrices of items × items. A symmetric sum only fills the upper channels."""

    def __init__(self, method: ClosedForm, n_items: int) -> None:
        self._method, self._n_items = method, n_items
        self._totals = {name: np.zeros(c.shape(n_items)) for name, c in method.update.sums.items()}

    def add(self, part: Contribution) -> None:
        """Add the contribution of one client, or of several together."""
        for name, block in part.blocks.items():
            channels, total = self._method.update.sums[name], self._totals[name]
            if channels.width:
                total[:, part.items] += block
            else:
                _add_pairs(total, channels, part.items, block)

    def of(self, items: Ints) -> Contribution:
        """The total as a contribution."""
        sums = self._method.update.sums
        rows = {name: total[:, items] for name, total in self._totals.items()}
        return Contribution(
            items, {name: each if sums[name].width else each[..., items] for name, each in rows.items()}
        )

    def solve(self, device: torch.device, dtype: torch.dtype, cover: Cover | None = None) -> Params:
        """Solve for the model."""
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
        """Add the totals of all ranks on the first one."""
        for total in self._totals.values():
            ranks.add_on_first(torch.from_numpy(total))

    def grown(self, n_items: int) -> DenseSum:
        """A copy for so many items; the new ones come last."""
        larger = DenseSum(self._method, n_items)
        larger.restore(self.tensors())
        return larger

    def tensors(self) -> Params:
        """The totals as named tensors."""
        return {name: torch.from_numpy(total) for name, total in self._totals.items()}

    def restore(self, tensors: Params) -> None:
        """Add the output of `tensors`."""
        for name, total in self._totals.items():
            found = tensors[name].numpy()
            total[tuple(slice(size) for size in found.shape)] += found


class SparseSum(Sum):
    """The total in sparse matrices, with sources and targets as in `math.neighbours`.

    Only the upper half of a symmetric sum is held. Any other sum is held transposed, target by target.
    """

    def __init__(self, method: ClosedForm, n_items: int) -> None:
        self._method, self._n_items = method, n_items
        self.totals = {name: _empty(each, n_items) for name, each in method.update.sums.items()}

    def add(self, part: Contribution) -> None:
        """Add the contribution of one client, or of several together."""
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
        """The total as a contribution."""
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
        """Solve for the model."""
        assert cover is None  # noise would fill the matrices; refused beforehand
        aggregate = self._method.aggregate
        totals: dict[str, Rows] = {name: total.take() for name, total in self.totals.items()}
        ids, values = aggregate.solve_sparse(totals)
        return {NEIGHBOURS: ids.to(device), WEIGHTS: values.to(device, dtype)}

    def add_on_first(self, ranks: Ranks) -> None:
        """Add the totals of all ranks on the first one."""
        for total in self.totals.values():
            own = total.whole()
            sent = {"keys": torch.from_numpy(own.keys), "values": torch.from_numpy(own.values)}
            for found in ranks.sent_to_first(sent):
                total.add_run(Run(found["keys"].numpy(), found["values"].numpy()))

    def grown(self, n_items: int) -> SparseSum:
        """A copy for so many items; the new ones come last."""
        larger = SparseSum(self._method, n_items)
        larger.restore(self.tensors())
        return larger

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
        """Add the output of `tensors`."""
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
    """The numbers of all channels of some items, as in `math.neighbours`."""
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
