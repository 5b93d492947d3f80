"""The block engine: many clients as one tensor program over the rows they touch.

The rows that the clients of a block touch this round stand in one table [clients, width], padded to the
client with the most rows: nothing has the size clients × items. Clients of a block are of similar size and
take the same number of steps, so that they march in lockstep and little is padding. Blocks are independent:
they are spread over threads, each of which works in one torch thread, so the number of threads cannot
change a result.
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

from solera.core.losses import binary_cross_entropy, binary_cross_entropy_slope
from solera.core.method import Method, Move
from solera.core.spec import Home, Leaf, Params
from solera.core.upload import Upload
from solera.data.ragged import Ints
from solera.engine.optimizers import Gradient, Step, step_of
from solera.engine.plan import BlockPlan, StepPlan
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
    epochs = sum(stage.epochs for stage in stages)
    plan = BlockPlan(task, clients, epochs)
    before = _start(method, task.state, clients, plan)
    work = _Work(method, before, plan)
    loss = torch.zeros(len(clients), device=device, dtype=task.state.dtype)
    epoch = 0
    for stage in stages:
        moves = [(move, step_of(move.optimizer)) for move in stage.moves]
        for _ in range(stage.epochs):
            epoch += 1
            for step in plan.steps.of_epoch(epoch - 1):
                for move, optimizer in moves:
                    scores = work.move(move, optimizer, step)
                if epoch == epochs:  # only the last epoch's loss is reported
                    loss += binary_cross_entropy(scores, *step.batch) * step.sizes
    after = work.result()
    upload = Upload.declared(method.leaves, plan.rows, plan.row_counts, before, after)
    return ClientResult(clients, upload, after, loss / plan.lengths)


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
    """The parameters of a block while it trains; per-item leaves as tables [clients × width, *shape]."""

    def __init__(self, method: Method, start: Params, plan: BlockPlan) -> None:
        self._method, self._plan = method, plan
        self._per_item = {leaf.name for leaf in method.select(per_item=True)}
        self._params = {
            name: self._padded(value) if name in self._per_item else value.clone()
            for name, value in start.items()
        }
        self._seen: Params = {}
        self._seen_in: StepPlan | None = None

    def move(self, move: Move, optimizer: Step, step: StepPlan) -> Tensor:
        """Step some leaves on one batch; the scores before the step.

        The loss's derivative by the scores is known in closed form, so autograd starts at the scores.
        """
        inputs = self._look(step)
        moving = {name: inputs[name].detach().requires_grad_() for name in move.leaves}
        scores = self._method.score(inputs | moving)
        slope = binary_cross_entropy_slope(scores.detach(), *step.batch)
        gradients = torch.autograd.grad(scores, list(moving.values()), slope)
        optimizer([self._gradient(n, g, step.place) for n, g in zip(moving, gradients, strict=True)])
        for name in moving:
            self._seen.pop(name, None)
        return scores.detach()

    def result(self) -> Params:
        """The parameters without padding."""
        real = self._plan.real
        return {
            name: value.index_select(0, real) if name in self._per_item else value
            for name, value in self._params.items()
        }

    def _padded(self, rows: Tensor) -> Tensor:
        clients, width = self._plan.shape
        return rows.new_zeros(clients * width, *rows.shape[1:]).index_copy_(0, self._plan.real, rows)

    def _look(self, step: StepPlan) -> Params:
        """Per-item leaves as the step sees them; rows that have not moved since are not gathered again."""
        if step is not self._seen_in:
            self._seen, self._seen_in = {}, step
        for name in self._per_item - set(self._seen):
            values = self._params[name]
            seen = values if step.place is None else values.index_select(0, step.place)
            self._seen[name] = seen.view(*step.batch.weights.shape, *values.shape[1:])
        return self._params | self._seen

    def _gradient(self, name: str, gradient: Tensor, place: Tensor | None) -> Gradient:
        values = self._params[name]
        if name in self._per_item:
            return Gradient(values, gradient.reshape(-1, *values.shape[1:]), place)
        return Gradient(values, gradient, None)
