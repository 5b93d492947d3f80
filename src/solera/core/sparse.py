"""Sums of sparse matrices.

An entry is a key, row · columns + column, and a value. Entries are collected in batches. A batch is sorted
and its equal keys are added, which makes a run; runs of like size are merged, so that every entry is merged
about log₂(batches) times. A matrix with few cells is summed in place: that takes less than a batch does.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from solera.core.types import Ints

_BATCH = 1 << 23  # entries that are sorted together
_PIECE = 1 << 24  # entries that are merged at once
_FEW_RUNS = 8
_FEW_CELLS = 1 << 26

Numbers = NDArray[Any]


class Run(NamedTuple):
    """Entries with ascending keys, each once."""

    keys: Ints
    values: Numbers

    def between(self, low: int, high: int) -> Run:
        """The entries with low ≤ key < high (a view)."""
        begin, end = np.searchsorted(self.keys, [low, high])
        return Run(self.keys[begin:end], self.values[begin:end])


class Rows(NamedTuple):
    """A sparse matrix by rows (CSR): row r has its entries from `offsets[r]` to `offsets[r + 1]`."""

    offsets: Ints
    columns: NDArray[np.int32]
    values: Numbers

    def row(self, index: int) -> tuple[NDArray[np.int32], Numbers]:
        """Columns and values of one row (views)."""
        place = slice(self.offsets[index], self.offsets[index + 1])
        return self.columns[place], self.values[place]


def at_least(matrix: Rows, least: float) -> Rows:
    """The matrix without its entries below `least`."""
    kept = matrix.values >= least
    before = np.concatenate([[0], np.cumsum(kept)])
    return Rows(before[matrix.offsets], matrix.columns[kept], matrix.values[kept])


def bytes_of_total(entries: int, cells: int) -> int:
    """Memory that a total takes, about: of a batch while it is sorted, and of so many entries."""
    if cells <= _FEW_CELLS:
        return 8 * cells
    return 48 * _BATCH + 12 * min(entries, cells)


class SparseTotal:
    """The sum of many sparse matrices of one shape."""

    def __init__(self, rows: int, columns: int, dtype: type[np.floating[Any]]) -> None:
        self.rows, self.columns, self._dtype = rows, columns, dtype
        self._pending: list[Run] = []
        self._waiting = 0
        self._runs: list[Run] = []
        self._cells = np.zeros(rows * columns, dtype) if rows * columns <= _FEW_CELLS else None

    def add(self, rows: Ints, columns: Ints, values: Numbers) -> None:
        """Add entries, in any order; equal ones add up."""
        self.add_run(Run(rows.astype(np.int64) * self.columns + columns, values.astype(self._dtype)))

    def add_run(self, entries: Run) -> None:
        """Add entries that are keys already."""
        if self._cells is not None:
            np.add.at(self._cells, entries.keys, entries.values)
            return
        self._pending.append(entries)
        self._waiting += len(entries.keys)
        if self._waiting >= _BATCH:
            self._flush()

    def _flush(self) -> None:
        if self._cells is not None:
            keys = np.flatnonzero(self._cells)
            self._runs = [Run(keys, self._cells[keys])]
            return
        if self._pending:
            self._runs.append(_added(self._pending))
            self._pending, self._waiting = [], 0
        while len(self._runs) > 1 and 2 * len(self._runs[-1].keys) > len(self._runs[-2].keys):
            last, before = self._runs.pop(), self._runs.pop()
            self._runs.append(joined(list(merged([before, last]))))

    def whole(self) -> Run:
        """What has been added so far, as one run."""
        self._flush()
        if len(self._runs) > 1:
            self._runs = [joined(list(merged(self._runs)))]
        return self._runs[0] if self._runs else Run(np.zeros(0, np.int64), np.zeros(0, self._dtype))

    def take(self) -> Rows:
        """The total, which is used up."""
        self._flush()
        runs, self._runs = self._runs, []
        counts = np.zeros(self.rows + 1, dtype=np.int64)
        columns, values = [], []
        for piece in merged(runs):
            row, column = np.divmod(piece.keys, self.columns)
            counts[1:] += np.bincount(row, minlength=self.rows)
            columns.append(column.astype(np.int32))
            values.append(piece.values)
        runs.clear()
        return Rows(
            np.cumsum(counts),
            np.concatenate(columns or [np.zeros(0, np.int32)]),
            np.concatenate(values or [np.zeros(0, self._dtype)]),
        )


def merged(runs: list[Run]) -> Iterator[Run]:
    """The sum of runs as pieces with ascending keys."""
    longest = max(runs, key=lambda run: len(run.keys), default=None)
    if longest is None:
        return
    pieces = 1 + sum(len(run.keys) for run in runs) // _PIECE
    places = np.arange(1, pieces) * len(longest.keys) // pieces
    bounds = [0, *np.unique(longest.keys[places]).tolist(), np.iinfo(np.int64).max]
    for low, high in pairwise(bounds):
        yield _added([run.between(low, high) for run in runs])


def joined(pieces: list[Run]) -> Run:
    """Pieces that follow one another as one run."""
    return Run(*(np.concatenate(each) for each in zip(*pieces, strict=True)))


def _sorted(keys: Ints) -> tuple[Ints, Ints]:
    """Sorted keys, and where they were; equal ones keep their order.

    Few runs are merged. Many are sorted as numbers that end in their place, which NumPy does eight times as
    fast as it finds the order of numbers.
    """
    bits = len(keys).bit_length()
    if int((keys[1:] < keys[:-1]).sum()) < _FEW_RUNS or int(keys.max()) >= 1 << (63 - bits):
        order = np.argsort(keys, kind="stable")
        return keys[order], order
    packed = (keys << bits) | np.arange(len(keys))
    packed.sort()
    return packed >> bits, packed & ((1 << bits) - 1)


def _added(parts: list[Run]) -> Run:
    """Sort entries and add those with equal keys, in the order of the parts."""
    keys, values = joined(parts) if len(parts) > 1 else parts[0]
    if not len(keys) or (len(parts) == 1 and (keys[1:] > keys[:-1]).all()):
        return Run(keys, values)
    keys, order = _sorted(keys)
    first = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    return Run(keys[first], np.add.reduceat(values[order], first))
