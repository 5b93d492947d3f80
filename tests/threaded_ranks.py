"""Ranks that are threads of one process, so that tests need not start processes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import Queue
from threading import Barrier, BrokenBarrierError
from typing import Any, TypeVar

import torch

from solera.engine.ranks import Ranks

T = TypeVar("T")


class ThreadedRanks(Ranks):
    """A thread among the others. Everything is exchanged by way of one list."""

    def __init__(self, rank: int, board: list[Any], barrier: Barrier, sent: list[Queue]) -> None:
        super().__init__(rank, len(board))
        self._board, self.barrier, self._sent = board, barrier, sent

    def gathered(self, value):
        self._board[self.rank] = value
        self.barrier.wait(60)
        found = list(self._board)
        self.barrier.wait(60)
        return found

    def gathered_by_first(self, value):
        found = self.gathered(value)
        return [] if self.rank else found

    def largest(self, values):
        return torch.stack(self.gathered(values.clone())).amax(0)

    def add(self, values):
        values.copy_(torch.stack(self.gathered(values.clone())).sum(0))

    def exchanged_counts(self, counts):
        return [each[self.rank] for each in self.gathered(counts)]

    def exchanged(self, values, sent, got):
        assert sum(sent) == len(values)
        parts = [theirs.split(counts)[self.rank] for theirs, counts in self.gathered((values, sent))]
        assert [len(part) for part in parts] == got
        return torch.cat(parts)

    def show(self, values, owner):
        values.copy_(self.gathered(values.clone())[owner])

    def send_to_first(self, values):
        self._sent[self.rank].put(values.clone())

    def receive_from(self, rank, values):
        values.copy_(self._sent[rank].get(timeout=60))

    def wait(self):
        self.gathered(None)


def on_ranks(size: int, work: Callable[[Ranks], T]) -> list[T]:
    """The results of every rank's work, at the same time. Raises the first error that is not a follow-up."""
    board, barrier = [None] * size, Barrier(size)
    sent: list[Queue[torch.Tensor]] = [Queue() for _ in range(size)]

    def of(rank: int) -> T:
        try:
            return work(ThreadedRanks(rank, board, barrier, sent))
        except BaseException:
            barrier.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(of, rank) for rank in range(size)]
        errors = [error for each in futures if (error := each.exception())]
    if errors:
        raise next((each for each in errors if not isinstance(each, BrokenBarrierError)), errors[0])
    return [each.result() for each in futures]
