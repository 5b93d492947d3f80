"""Work on several threads, with results in order, and the threads and memory of this process."""

from __future__ import annotations

import ctypes
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

Part = TypeVar("Part")
Result = TypeVar("Result")


def in_order(work: Callable[[Part], Result], parts: Sequence[Part], threads: int) -> Iterator[Result]:
    """Process the parts on so many threads, 0 for one per core, and yield results in the order of the parts.

    On several threads, each has a single one of torch: more would only get in each other's way.
    """
    threads = threads or os.cpu_count() or 1
    if threads == 1 or len(parts) == 1:
        yield from map(work, parts)
        return

    def alone(part: Part) -> Result:
        torch.set_num_threads(1)  # a new thread starts with torch's default
        return work(part)

    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[Result]] = deque()
        for part in parts:
            if len(waiting) > 2 * threads:  # limit the number of results in memory
                yield waiting.popleft().result()
            waiting.append(pool.submit(alone, part))
        while waiting:
            yield waiting.popleft().result()


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # from glibc's malloc.h
_NEVER, _LARGE, _USUAL = -1, 1 << 30, 128 << 10  # the last is glibc's default


def keep_freed_memory() -> bool:
    """Keep freed memory for reuse. Return whether the C library supports this.

    A block's tensors take up to hundreds of megabytes. By default the C library returns chunks of that size
    to the system at once, which then has to clear every page of the next one: this was measured as a third of
    a round's time. Does nothing if the library is not glibc.
    """
    return _set_thresholds(_NEVER, _LARGE)


@contextmanager
def memory_given_back() -> Iterator[None]:
    """At the end, what was kept goes back to the system, and freed memory does so from then on."""
    try:
        yield
    finally:
        if _set_thresholds(_USUAL, _USUAL):
            ctypes.CDLL(None).malloc_trim(0)


def _set_thresholds(trim: int, mmap: int) -> bool:
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return all(mallopt(*how) == 1 for how in ((_M_TRIM_THRESHOLD, trim), (_M_MMAP_THRESHOLD, mmap)))


@contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Temporarily set the number of torch threads (0: leave it unchanged)."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
