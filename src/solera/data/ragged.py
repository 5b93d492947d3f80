"""Lists of different lengths, one per user, stored in two arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solera.core.arrays import Ints


@dataclass(frozen=True, eq=False)
class Ragged:
    """`values[offsets[u]:offsets[u + 1]]` is the list of user `u`."""

    offsets: Ints
    values: Ints

    @classmethod
    def from_pairs(cls, rows: Ints, values: Ints, n_rows: int) -> Ragged:
        """Group `values` by `rows`, keeping their order within a row."""
        order = np.argsort(rows, kind="stable")
        return cls(cls._offsets(np.bincount(rows, minlength=n_rows)), np.ascontiguousarray(values[order]))

    @classmethod
    def of_lengths(cls, lengths: Ints, values: Ints) -> Ragged:
        """Build from values that are already ordered row by row."""
        return cls(cls._offsets(lengths), values)

    @classmethod
    def from_lists(cls, lists: list[list[int]]) -> Ragged:
        """Build from one list per row."""
        values = np.array([v for row in lists for v in row], dtype=np.int64)
        return cls(cls._offsets(np.array([len(row) for row in lists], dtype=np.int64)), values)

    @staticmethod
    def _offsets(lengths: Ints) -> Ints:
        return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Ints:
        """The number of values in each row."""
        return np.diff(self.offsets)

    @property
    def rows(self) -> Ints:
        """The row index of every value."""
        return np.repeat(np.arange(len(self), dtype=np.int64), self.lengths)

    def row(self, index: int) -> Ints:
        """The values of one row (a view)."""
        return self.values[self.offsets[index] : self.offsets[index + 1]]

    def take(self, rows: Ints) -> Ragged:
        """The given rows, in the given order."""
        lengths = self.lengths[rows]
        offsets = self._offsets(lengths)
        source = np.repeat(self.offsets[rows] - offsets[:-1], lengths) + np.arange(offsets[-1])
        return Ragged(offsets, self.values[source])

    def sorted_unique(self) -> Ragged:
        """Every row sorted, without duplicates."""
        if not len(self.values):
            return self
        width = int(self.values.max()) + 1
        keys = np.unique(self.rows * width + self.values)
        rows = keys // width
        return Ragged(self._offsets(np.bincount(rows, minlength=len(self))), keys % width)

    def concat(self, other: Ragged) -> Ragged:
        """Concatenate row by row: this row's values, then the other's."""
        values = np.empty(len(self.values) + len(other.values), dtype=np.int64)
        values[np.arange(len(self.values)) + np.repeat(other.offsets[:-1], self.lengths)] = self.values
        values[np.arange(len(other.values)) + np.repeat(self.offsets[1:], other.lengths)] = other.values
        return Ragged(self.offsets + other.offsets, values)
