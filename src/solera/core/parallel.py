"""Work on several threads, with results in order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
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
