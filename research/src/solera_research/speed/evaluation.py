"""Measure the cost of an evaluation: full ranking for all users, in a separate process."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from typing import Any

import torch
from torch import Tensor

from solera.core.threads import torch_threads
from solera.core.types import Ints
from solera.data.interactions import Interactions
from solera.evaluate import Evaluator, split
from solera.runs.environment import peak_bytes

EMBEDDING_SIZE = 32


def bench_evaluation(data: Interactions, *, repeats: int = 3, threads: int = 2) -> dict[str, Any]:
    """Seconds of preparing once and of one evaluation (the median), and the peak of the process.

    The test items are ranked under `strict`, in full ranking and against 99 items, by the dot products of
    random vectors: scoring is as cheap as it gets, so that ranking is what is measured. On a busy machine
    `cpu_seconds`, of all threads together, say more than `seconds`.
    """
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found: dict[str, Any] = pool.apply(_measure, (data, repeats, threads))
    return found


def _measure(data: Interactions, repeats: int, threads: int) -> dict[str, Any]:
    draw = torch.Generator().manual_seed(0)
    users, items = (torch.randn(n, EMBEDDING_SIZE, generator=draw) for n in (data.n_users, data.n_items))

    def score(who: Ints) -> Tensor:
        return users[torch.from_numpy(who)] @ items.T

    parts = split(data, "strict")
    with torch_threads(threads):
        start = time.perf_counter()
        evaluator = Evaluator(parts, seed=0)
        prepared = time.perf_counter() - start
        seconds, busy = [], []
        for _ in range(repeats):
            start, start_busy = time.perf_counter(), time.process_time()
            evaluation = evaluator.test(score)
            seconds.append(time.perf_counter() - start)
            busy.append(time.process_time() - start_busy)
    return {
        "dataset": data.name,
        "users": len(evaluation.full_ranking.users),
        "items": data.n_items,
        "repeats": repeats,
        "threads": threads,
        "seconds_preparing": prepared,
        "seconds": statistics.median(seconds),
        "cpu_seconds": statistics.median(busy),
        "peak_bytes": peak_bytes(),
    }
