"""The block engine: many clients as one tensor program over the rows they touch.

The rows that the clients of a block touch this round stand one client after the other in one table (a
disjoint union, no padding, nothing of size clients × items). The clients of a block all take the same
number of steps, so that they march in lockstep; a step's batch is a matrix [clients, batch] of places in
the table, padded only where last batches differ in length. Blocks are independent: they are spread over
threads, each of which works in one torch thread, so the number of threads cannot change a result.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from solera.core.method import Batch, Method, Move
from solera.core.spec import Home, Leaf, Params
from solera.core.upload import Upload
from solera.data.ragged import Ints
from solera.engine.optimizers import Gradient, Step, step_of
from solera.engine.plan import BlockPlan
from solera.engine.simulation import ClientResult, State, Task

BLOCK_SAMPLES = (
    32_768  # samples of a block: small enough for the cache, large enough to hide torch's overhead
)


@dataclass(frozen=True)
class BlockTraining:
    """Local training of many clients at once."""

    threads: int = 0  # 0: one per core
    block_samples: int = BLOCK_SAMPLES

    def __call__(self, task: Task, clients: Ints) -> Iterator[ClientResult]:
        """Train block after block; results come in the order of the blocks."""
        samples = task.data.train.lengths[clients] * (1 + task.context.negatives)
        blocks = partition(samples, task.context.batch_size, self.block_samples)
        threads = self.threads or os.cpu_count() or 1
        with _one_torch_thread(), ThreadPoolExecutor(threads) as pool:
            waiting: deque[Future[ClientResult]] = deque()
            for block in blocks:
                # A bounded queue: finished blocks must not pile up in memory.
                if len(waiting) > 2 * threads:
                    yield waiting.popleft().result()
                waiting.append(pool.submit(_train_block, task, clients[block]))
            while waiting:
                yield waiting.popleft().result()


def partition(samples: Ints, batch_size: int, block_samples: int) -> list[Ints]:
    """Positions of clients that take equally many steps, cut into blocks of about `block_samples`."""
    order = np.argsort(-samples, kind="stable")  # largest first: no thread is left with a long one at the end
    steps = -(-samples[order] // batch_size)
    blocks = []
    for group in np.split(order, np.flatnonzero(np.diff(steps)) + 1):
        filled = np.cumsum(samples[group]) // block_samples
        blocks += np.split(group, np.flatnonzero(np.diff(filled)) + 1)
    return [block for block in blocks if len(block)]


@contextmanager
def _one_torch_thread() -> Iterator[None]:
    """Parallelism comes from the blocks: torch's own would only get in its way."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _train_block(task: Task, clients: Ints) -> ClientResult:
    torch.set_num_threads(1)  # a new thread starts with torch's default
    method, device = task.method, task.state.device
    stages = method.update.stages(task.context)
    plan = BlockPlan(task, clients, sum(stage.epochs for stage in stages))
    before = _start(method, task.state, clients, plan)
    work = _Work(method, {name: value.clone() for name, value in before.items()})
    loss = torch.zeros(len(clients), device=device, dtype=task.state.dtype)
    epoch = 0
    for stage in stages:
        steps = [(move, step_of(move.optimizer)) for move in stage.moves]
        for _ in range(stage.epochs):
            loss.zero_()
            for place, batch, sizes in plan.batches(epoch):
                for move, step in steps:
                    move_loss = work.move(move, step, place, batch)
                loss += move_loss * sizes
            epoch += 1
    upload = Upload.declared(method.leaves, plan.rows, plan.row_counts, before, work.params)
    return ClientResult(clients, upload, work.params, loss / plan.lengths)


def _start(method: Method, state: State, clients: Ints, plan: BlockPlan) -> Params:
    """Parameters before training: rows of per-item leaves, one value per client of all others."""
    index = torch.from_numpy(clients).to(state.device)

    def value(leaf: Leaf) -> Tensor:
        match leaf.home, leaf.per_item:
            case Home.SHARED, True:
                return state.shared[leaf.name].index_select(0, plan.rows)
            case Home.SHARED, False:
                return state.shared[leaf.name].expand(len(clients), *leaf.shape)
            case Home.PERSONAL, True:
                rows = torch.split(plan.rows, plan.row_counts.tolist())
                each = zip(clients.tolist(), rows, strict=True)
                return torch.cat([state.personal.get_rows(leaf.name, c, r) for c, r in each])
            case _:
                return state.personal.whole[leaf.name].index_select(0, index)

    return {leaf.name: value(leaf) for leaf in method.leaves}


class _Work:
    """The parameters of a block while it trains."""

    def __init__(self, method: Method, params: Params) -> None:
        self.params = params
        self._method = method
        self._per_item = {leaf.name for leaf in method.select(per_item=True)}
        self._seen: Params = {}
        self._seen_at: Tensor | None = None

    def move(self, move: Move, step: Step, place: Tensor, batch: Batch) -> Tensor:
        """Step some leaves on one batch; the loss of every client before the step."""
        inputs = self._look(place, batch)
        moving = {name: inputs[name].detach().requires_grad_() for name in move.leaves}
        loss = self._method.loss(inputs | moving, batch)
        gradients = torch.autograd.grad(loss.sum(), list(moving.values()))
        step([self._gradient(n, g, place) for n, g in zip(moving, gradients, strict=True)])
        for name in moving:
            self._seen.pop(name, None)
        return loss.detach()

    def _look(self, place: Tensor, batch: Batch) -> Params:
        """Per-item leaves gathered for the batch; rows that have not moved since are not gathered again."""
        if place is not self._seen_at:
            self._seen, self._seen_at = {}, place
        for name in self._per_item - set(self._seen):
            values = self.params[name]
            self._seen[name] = values.index_select(0, place).view(*batch.labels.shape, *values.shape[1:])
        return self.params | self._seen

    def _gradient(self, name: str, gradient: Tensor, place: Tensor) -> Gradient:
        values = self.params[name]
        if name in self._per_item:
            return Gradient(values, gradient.reshape(-1, *values.shape[1:]), place)
        return Gradient(values, gradient, None)
