"""The block engine: train many clients in one tensor program over the rows they touch.

The rows that the clients of a block touch in a round form one table; nothing has size clients × items.
Clients of a block have similar sizes and advance in lockstep, one batch of each at a time. Blocks are
independent and run on several threads. Each uses a single torch thread, so the number of threads cannot
change a result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from solera.core.leaf import Params
from solera.core.parts import Move, Stage, View
from solera.core.threads import in_order, keep_freed_memory, torch_threads
from solera.core.types import Ints
from solera.core.upload import Upload
from solera.engine.local_training import (
    ClientResult,
    LocalTraining,
    SummedResult,
    Task,
    Trained,
    settled,
    start,
)
from solera.engine.optimizers import Gradient, Step, step_of
from solera.engine.plan import BlockPlan, SequencePlan, StepPlan, sequence_blocks, steps_of
from solera.engine.store import TouchedRows
from solera.engine.windows import PLACES, single_gradients, summed_gradients, upload_numbers, window_batches

Result = TypeVar("Result")

# Samples per block: large enough to hide the overhead of torch and Python, small enough to spread over
# threads; fewer if a row has many numbers, for the cache. Both were measured.
BLOCK_SAMPLES = 65_536
BLOCK_NUMBERS = 2_097_152
# Up to this many steps per epoch, a client's steps use its whole table instead of gathering rows. Measured.
WHOLE_UP_TO = 3


@dataclass(frozen=True)
class BlockTraining(LocalTraining):
    """Local training of many clients at once."""

    threads: int = 0  # 0: one per core
    block_samples: int = BLOCK_SAMPLES
    whole_up_to: int = WHOLE_UP_TO

    def __call__(self, task: Task, clients: Ints) -> Iterator[ClientResult]:
        """Train block by block and yield results in the order of the blocks."""
        keep_freed_memory()
        if task.method.scorer.learns_from == "windows":
            yield from self._windows(single_gradients, task, clients, self.block_samples)
            return
        for part, some in task.by_news(clients):
            yield from self._blocks(part, some)

    def _blocks(self, task: Task, clients: Ints) -> Iterator[ClientResult]:
        samples = task.data.train.lengths[clients] * (1 + task.context.negatives)
        numbers = sum(leaf.size for leaf in task.method.select(per_item=True))
        size = min(self.block_samples, BLOCK_NUMBERS // max(1, numbers))
        if task.method.scorer.learns_from == "sequences":
            lengths = task.data.train.lengths[clients]
            blocks = sequence_blocks(lengths, task.context, self.block_samples)
        else:
            blocks = partition(samples, task.context.batch_size, size, self.whole_up_to)
        with torch_threads(1):  # blocks run in parallel; torch's own threads would only interfere
            yield from in_order(
                partial(train_block, task, self.whole_up_to),
                [clients[block] for block in blocks],
                self.threads,
            )

    def sums(self, task: Task, clients: Ints) -> Iterator[SummedResult]:
        """The summed gradients of batches of clients, for methods that learn from windows of histories."""
        if task.method.scorer.learns_from != "windows" or not len(clients):
            return iter(())
        return self._windows(summed_gradients, task, clients, min(PLACES, self.block_samples))

    def _windows(
        self, train: Callable[[Task, Ints], Result], task: Task, clients: Ints, places: int
    ) -> Iterator[Result]:
        lengths = np.minimum(task.data.train.lengths[clients], task.method.scorer.max_length + 1)
        single = train is single_gradients
        most = max(2, BLOCK_NUMBERS // upload_numbers(task)) if single else len(clients)
        batches = window_batches(lengths, places, most)
        with torch_threads(1):
            yield from in_order(partial(train, task), [clients[batch] for batch in batches], self.threads)


def partition(samples: Ints, batch_size: int, block_samples: int, whole_up_to: int) -> list[Ints]:
    """Indices of clients in blocks of about `block_samples` samples, largest clients first.

    Clients with few steps only share a block with clients that have equally many; see `BlockPlan`.
    """
    order = np.argsort(-samples, kind="stable")
    kind = np.minimum(steps_of(samples[order], batch_size), whole_up_to + 1)
    blocks = []
    for group in np.split(order, np.flatnonzero(np.diff(kind)) + 1):
        filled = np.cumsum(samples[group]) // block_samples
        blocks += np.split(group, np.flatnonzero(np.diff(filled)) + 1)
    return [block for block in blocks if len(block)]


def train_block(task: Task, whole_up_to: int, clients: Ints) -> ClientResult:
    """Train some clients together. The largest must come first."""
    method = task.method
    stages = task.stages
    plan: BlockPlan | SequencePlan
    if method.scorer.learns_from == "sequences":
        plan = SequencePlan(task, clients)
    else:
        plan = BlockPlan(task, clients, sum(stage.epochs for stage in stages), whole_up_to)
    group = TouchedRows(clients, plan.rows, plan.row_counts)
    before = start(task, group)
    work = _Work(task, before, plan)
    epoch = 0
    for stage in stages:
        last = stage is stages[-1]
        loss = work.run(stage, range(epoch, epoch + stage.epochs), report=last)
        epoch += stage.epochs
    trained = Trained(group, before, work.result())
    if work.settled_with is not None:
        trained = settled(task, trained, work.settled_with)
    (_, rows, counts), before, after = trained
    upload = Upload.declared(method.leaves, rows, counts, before, after)
    return ClientResult(clients, upload, after, loss)


class _Work:
    """The parameters of a block during training. Per-item leaves have the layout of the plan's table."""

    def __init__(self, task: Task, start: Params, plan: BlockPlan | SequencePlan) -> None:
        self._task, self._plan = task, plan
        self._per_item = {leaf.name for leaf in task.method.select(per_item=True)}
        self._params = {
            name: self._padded(value) if name in self._per_item and plan.whole else value.clone()
            for name, value in start.items()
        }
        self._seen: Params = {}
        self._seen_in: StepPlan | None = None
        self.settled_with: Params | None = None
        view = task.method.view
        self._deriving = view if view.does("observe") else None
        if self._deriving:
            self._before = self._by_client(
                {n: self._padded(v) if n in self._per_item and plan.whole else v for n, v in start.items()}
            )

    def run(self, stage: Stage, epochs: range, *, report: bool) -> Tensor:
        """Train the given epochs. With `report`, return each client's mean loss in its last epoch."""
        if stage.settle:
            self._settle()
        moves = [(move, [step_of(part.optimizer) for part in move.parts]) for move in stage.moves]
        stopping = _Stopping(stage, len(self._plan.row_counts)) if stage.stop else None
        loss = self._plan.lengths.new_zeros(len(self._plan.row_counts), dtype=self._task.state.dtype)
        for epoch in epochs:
            self._observe()
            asked = stopping is not None or (report and epoch == epochs[-1])
            now = self._epoch(moves, epoch, stage.view, asked=asked)
            if stopping is None:
                loss = now
                continue
            left = stopping.after(now)
            if left is not None:
                stopping.keep(left, {n: self._rows_of(n, left) for n in stopping.leaves}, self._params)
            if stopping.all:
                break
        if stopping is not None:
            loss = stopping.loss
            for clients, kept in stopping.kept:
                for name, values in kept.items():
                    self._params[name][self._rows_of(name, clients)] = values
            self._seen_in = None
        return loss

    def _epoch(
        self, moves: list[tuple[Move, list[Step]]], epoch: int, view: View | None, *, asked: bool
    ) -> Tensor:
        """Run all steps of an epoch. If asked, return each client's mean loss."""
        loss = self._plan.lengths.new_zeros(len(self._plan.row_counts), dtype=self._task.state.dtype)
        for step in self._plan.steps(epoch):
            for move, optimizers in moves:
                scores = self.move(move, optimizers, step, view)
            if asked:
                loss[: len(scores)] += step.loss(self._task, scores) * step.sizes
        return loss / self._plan.lengths

    def _rows_of(self, name: str, clients: Tensor) -> Tensor:
        """Mask of a leaf's values that belong to some clients, given as a mask."""
        return clients[self._plan.owner] if name in self._per_item else clients

    def _by_client(self, params: Params) -> Params:
        """Per-item leaves as [clients, width, ...], zero where a client has no row."""
        if self._plan.whole:
            n = len(self._plan.row_counts)
            return {
                name: v.view(n, -1, *v.shape[1:]) if name in self._per_item else v
                for name, v in params.items()
            }
        padding = self._plan.padding
        return {name: padding.pad(v) if name in self._per_item else v for name, v in params.items()}

    def _settle(self) -> None:
        """Store the result of the method's view."""
        view = self._task.method.view
        self.settled_with = {n: v.clone() for n, v in self._params.items() if n not in self._per_item}
        outcome = view.settle(self._by_client(self._params))
        table = outcome.flatten(0, 1) if self._plan.whole else self._plan.padding.unpad(outcome)
        self._params[view.settles] = table.contiguous()
        self._seen_in = None

    def _observe(self) -> None:
        """Update derived leaves."""
        if self._deriving:
            self._params |= self._deriving.observe(self._before, self._by_client(self._params))
            self._seen_in = None

    def move(self, move: Move, optimizers: list[Step], step: StepPlan, view: View | None) -> Tensor:
        """Update some leaves on one batch, and return the scores before the update."""
        self._look(step)
        wanted = move.all_leaves
        scores, gradients = step.gradient(self._task, self._seen, wanted, view)
        for part, optimizer in zip(move.parts, optimizers, strict=True):
            optimizer([self._gradient(name, gradients[name], step) for name in part.leaves], step.marching)
        for name in self._per_item.intersection(wanted):
            del self._seen[name]
        return scores

    def result(self) -> Params:
        """The parameters without padding."""
        self._observe()
        if not self._plan.whole:
            return self._params
        real = self._plan.real
        return {
            name: value.index_select(0, real) if name in self._per_item else value
            for name, value in self._params.items()
        }

    def _padded(self, rows: Tensor) -> Tensor:
        return rows.new_zeros(self._plan.table_rows, *rows.shape[1:]).index_copy_(0, self._plan.real, rows)

    def _look(self, step: StepPlan) -> None:
        """Gather the rows that the step needs. Rows that have not changed since are not gathered again."""
        if step is not self._seen_in:
            self._seen_in = step
            clients = len(step.sizes)
            self._seen = {n: v[:clients] for n, v in self._params.items() if n not in self._per_item}
        for name in self._per_item.difference(self._seen):
            values = self._params[name]
            rows = values if step.place is None else values.index_select(0, step.place)
            self._seen[name] = rows.view(*step.batch.weights.shape, *values.shape[1:])

    def _gradient(self, name: str, gradient: Tensor, step: StepPlan) -> Gradient:
        """A leaf for the optimizers; `contiguous`, as their fused kernels pair numbers by memory position."""
        values, clients = self._params[name], self._plan.client_bounds
        gradient = gradient.contiguous()
        if name not in self._per_item:
            return Gradient(values, gradient, None, clients, clients)
        width = gradient.shape[1]
        flat = gradient.view(-1, *values.shape[1:])
        return Gradient(values, flat, step.place, self._plan.row_bounds, [bound * width for bound in clients])


class _Stopping:
    """Clients that leave a stage before its last epoch.

    A block runs in lockstep, so clients that have left keep training. Their parameters at the time they left
    are kept and used as the result.
    """

    def __init__(self, stage: Stage, clients: int) -> None:
        self._stop = stage.stop
        self._last: Tensor | None = None
        self.leaves = sorted({name for move in stage.moves for name in move.all_leaves})
        self.kept: list[tuple[Tensor, Params]] = []
        self.loss = torch.full((clients,), float("nan"))
        self._here = torch.ones(clients, dtype=torch.bool)

    @property
    def all(self) -> bool:
        """Whether all clients have left."""
        return not bool(self._here.any())

    def after(self, loss: Tensor) -> Tensor | None:
        """Mask of the clients that leave after an epoch with this loss, or None if none does."""
        here = self._here.to(loss.device)
        self.loss = torch.where(here, loss, self.loss.to(loss))
        last, self._last = self._last, loss
        if last is None:
            return None
        leaving = here & ((loss - last).abs() < self._stop * last.abs())
        self._here = here & ~leaving
        return leaving if bool(leaving.any()) else None

    def keep(self, clients: Tensor, rows: dict[str, Tensor], params: Params) -> None:
        """Save the parameters of the clients that leave."""
        self.kept.append((clients, {name: params[name][mask].clone() for name, mask in rows.items()}))
