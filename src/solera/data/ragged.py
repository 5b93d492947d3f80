"""Lists of different lengths, one per user, stored in two arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solera.core.errors import DataError
from solera.core.types import Floats, Ints


@dataclass(frozen=True, eq=False)
class Ragged:
    """`values[offsets[u]:offsets[u + 1]]` is the list of user `u`.

    Histories whose times are needed have the day of every value in `days`, and if it is known, the day on
    which recommendations are asked for in `asked`, one number per list.
    """

    offsets: Ints
    values: Ints
    days: Floats | None = None
    asked: Floats | None = None

    @classmethod
    def from_pairs(cls, rows: Ints, values: Ints, n_rows: int, days: Floats | None = None) -> Ragged:
        """Group `values` by `rows`, keeping their order within a row."""
        if (rows[1:] < rows[:-1]).any():
            order = np.argsort(rows, kind="stable")
            values, days = values[order], None if days is None else days[order]
        return cls(cls._offsets(np.bincount(rows, minlength=n_rows)), np.ascontiguousarray(values), days)

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

    def days_of(self, index: int) -> Floats | None:
        """The days of one row's values (a view), if they are known."""
        return None if self.days is None else self.days[self.offsets[index] : self.offsets[index + 1]]

    def take(self, rows: Ints) -> Ragged:
        """The given rows, in the given order. Rows that follow one another are a view."""
        asked = None if self.asked is None else self.asked[rows]
        if len(rows) and rows[-1] - rows[0] == len(rows) - 1 and (np.diff(rows) == 1).all():
            begin, end = self.offsets[rows[0]], self.offsets[rows[-1] + 1]
            days = None if self.days is None else self.days[begin:end]
            return Ragged(self.offsets[rows[0] : rows[-1] + 2] - begin, self.values[begin:end], days, asked)
        lengths = self.lengths[rows]
        offsets = self._offsets(lengths)
        source = np.repeat(self.offsets[rows] - offsets[:-1], lengths) + np.arange(offsets[-1])
        days = None if self.days is None else self.days[source]
        return Ragged(offsets, self.values[source], days, asked)

    def sorted_unique(self) -> Ragged:
        """Every row sorted, without duplicates and days."""
        if not len(self.values):
            return self
        width = int(self.values.max()) + 1
        keys = self.rows * width + self.values
        keys.sort()
        keys = keys[np.concatenate([[True], keys[1:] != keys[:-1]])]
        rows, values = np.divmod(keys, width)
        return Ragged(
            self._offsets(np.bincount(rows, minlength=len(self))),
            values.astype(self.values.dtype, copy=False),
        )

    def concat(self, other: Ragged) -> Ragged:
        """Concatenate row by row: this row's values, then the other's."""
        here = np.arange(len(self.values)) + np.repeat(other.offsets[:-1], self.lengths)
        there = np.arange(len(other.values)) + np.repeat(self.offsets[1:], other.lengths)
        wide = np.result_type(self.values, other.values)
        values = np.empty(len(self.values) + len(other.values), dtype=wide)
        values[here], values[there] = self.values, other.values
        days = None
        if self.days is not None and other.days is not None:
            days = np.empty(len(values))
            days[here], days[there] = self.days, other.days
        return Ragged(self.offsets + other.offsets, values, days, self.asked)


def ages(histories: Ragged) -> Ints:
    """The age of every item; the most recent one of a history has age 0."""
    last = np.repeat(histories.offsets[1:], histories.lengths) - 1
    found: Ints = last - np.arange(len(histories.values))
    return found


def gaps(histories: Ragged) -> Floats:
    """Days from every item to the request for recommendations; if that is not known, to the newest item."""
    until, days = histories.asked, days_of_all(histories)
    if until is None:
        until = np.zeros(len(histories))
        some = histories.lengths > 0
        until[some] = days[histories.offsets[1:][some] - 1]
    found: Floats = np.maximum(np.repeat(until, histories.lengths) - days, 0.0)
    return found


def days_of_all(histories: Ragged) -> Floats:
    """The days of all values. Raises an error if they are not known."""
    if histories.days is None:
        raise DataError(
            "decay_days needs the dates of all interactions, which are not known here",
            "omit decay_days: then items fade by their order",
        )
    return histories.days
