"""Ranks that are threads of one process, so that tests need not start processes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from queue import Queue
from typing import Any, TypeVar

import torch
from torch.utils._pytree import tree_map

from solera.engine.ranks import Ranks

T = TypeVar("T")


def _copy(value):
    return value.clone() if isinstance(value, torch.Tensor) else deepcopy(value)


class GoneError(Exception):
    """Another rank has ended with an error."""


class ThreadedRanks(Ranks):
    """A thread among the others. `lines[a][b]` has what rank a sends to rank b, in order."""

    def __init__(self, rank: int, lines: list[list[Queue[Any]]]) -> None:
        super().__init__(rank, len(lines))
        self._lines = lines

    def _send(self, value, rank):
        self._lines[self.rank][rank].put(tree_map(_copy, value))  # the sender may change it

    def _receive(self, rank):
        value = self._lines[rank][self.rank].get(timeout=300)
        if value is GoneError:
            raise GoneError
        return value

    def leave(self):
        for line in self._lines[self.rank]:
            line.put(GoneError)

    def gathered(self, tensors):
        return self._all(dict(tensors))

    def _all(self, value):
        for rank in range(self.size):
            self._send(value, rank)
        return [self._receive(rank) for rank in range(self.size)]

    def gathered_by_first(self, tensors):
        found = self.gathered(tensors)
        return [] if self.rank else found

    def largest(self, values):
        return torch.stack(self._all(values)).amax(0)

    def add(self, values):
        values.copy_(torch.stack(self._all(values)).sum(0))

    def exchanged_counts(self, counts):
        return [each[self.rank] for each in self._all(counts)]

    def exchanged(self, values, sent, got):
        assert sum(sent) == len(values)
        parts = [theirs.split(counts)[self.rank] for theirs, counts in self._all((values, sent))]
        assert [len(part) for part in parts] == got
        return torch.cat(parts)

    def show(self, values, owner):
        values.copy_(self._all(values)[owner])

    def send_to_first(self, values):
        self._send(values, 0)

    def receive_from(self, rank, values):
        values.copy_(self._receive(rank))

    def wait(self):
        self._all(None)


def on_ranks(size: int, work: Callable[[Ranks], T]) -> list[T]:
    """The results of every rank's work, at the same time. Raises the first error that is not a follow-up."""
    lines: list[list[Queue[Any]]] = [[Queue() for _ in range(size)] for _ in range(size)]

    def of(rank: int) -> T:
        ranks = ThreadedRanks(rank, lines)
        try:
            return work(ranks)
        finally:
            ranks.leave()

    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(of, rank) for rank in range(size)]
        errors = [error for each in futures if (error := each.exception())]
    if errors:
        raise next((each for each in errors if not isinstance(each, GoneError)), errors[0])
    return [each.result() for each in futures]
