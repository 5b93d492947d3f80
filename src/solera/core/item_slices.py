"""Scores of all items, some items at a time, for processes that do not hold whole tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import NamedTuple

from torch import Tensor

from solera.core.arrays import Ints


class ItemSlice(NamedTuple):
    """Some items, and a function that gives users' scores of them, [len(users), len(items)]."""

    items: range
    scores: Callable[[Ints], Tensor]


class ItemSlices(ABC):
    """The items of several processes in slices. All processes call every method together."""

    rows: int  # of the longest slice

    @abstractmethod
    def largest(self, number: int) -> int:
        """The largest number of all processes."""

    @abstractmethod
    def serve(self, users: Ints) -> Callable[[], Iterator[ItemSlice]]:
        """A function that goes through all items once, with scores for these users of this process."""
