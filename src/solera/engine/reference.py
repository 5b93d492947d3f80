"""The reference engine: one client at a time, with ordinary torch optimizers. It is the specification.

Other engines must produce the same results.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ExponentialLR

from solera.core.context import Batch
from solera.core.leaf import Params
from solera.core.parts import Adam, Move, Stage, View
from solera.core.types import Ints
from solera.core.upload import Upload
from solera.data.sampling import sample, shuffles
from solera.engine.block import train_block
from solera.engine.local_training import ClientResult, LocalTraining, Task, Trained, settled, start
from solera.engine.store import TouchedRows
from solera.engine.windows import single_gradients


class OneByOne(LocalTraining):
    """Train every client alone, in the given order.

    A client that learns from item order is trained as a block of one; a test compares that with a separate
    loop.
    """

    def __call__(self, task: Task, clients: Ints) -> Iterator[ClientResult]:
        """Train one client after the other."""
        for client in clients:
            match task.method.scorer.learns_from:
                case "items":
                    yield _train_client(task, int(client))
                case "sequences":
                    yield train_block(task, 0, np.array([client]))
                case "windows":
                    yield single_gradients(task, np.array([client]))


train_one_by_one = OneByOne()


def _train_client(task: Task, client: int) -> ClientResult:
    method, context, seed = task.method, task.context, task.seed
    who = np.array([client])
    samples = sample(task.data, who, context.negatives, seed, context.round)
    items, place = np.unique(samples.items.values, return_inverse=True)
    rows, place_of = torch.from_numpy(items), torch.from_numpy(place)
    labels = (torch.arange(len(place)) < int(samples.positives[0])).to(task.state.dtype)
    group = TouchedRows(who, rows, torch.tensor([len(rows)]))
    before = start(task, group)
    training = _Training(task, before, place_of, labels)

    stages = task.stages
    draws = task.data.drawn_by(who)
    orders = shuffles(samples.items.lengths, draws, sum(s.epochs for s in stages), seed, context.round)
    epochs = torch.split(torch.from_numpy(orders), [stage.epochs for stage in stages])
    for stage, stage_orders in zip(stages, epochs, strict=True):
        loss = training.run(stage, stage_orders)

    trained = Trained(group, before, training.result())
    if training.settled_with is not None:
        trained = settled(task, trained, training.settled_with)
    (clients, rows, counts), before, after = trained
    upload = Upload.declared(method.leaves, rows, counts, before, after)
    return ClientResult(clients, upload, after, torch.tensor([loss], dtype=task.state.dtype))


class _Training:
    """One client's parameters during training."""

    def __init__(self, task: Task, before: Params, place: Tensor, labels: Tensor) -> None:
        self._task, self._place, self._labels = task, place, labels
        self._per_item = {leaf.name for leaf in task.method.select(per_item=True)}
        self._before = {n: v if n in self._per_item else v[0] for n, v in before.items()}
        self._params = {name: value.clone().requires_grad_() for name, value in self._before.items()}
        self.settled_with: Params | None = None

    def run(self, stage: Stage, orders: Tensor) -> float:
        """Train one epoch after the other, and return the mean loss of the last one."""
        if stage.settle:
            self._settle()
        moves = [[_optimizer(part, self._params) for part in move.parts] for move in stage.moves]
        loss = float("nan")
        for epoch, order in enumerate(orders):
            self._observe()
            last, loss = loss, self._epoch(moves, order, stage.view)
            if epoch and abs(loss - last) < stage.stop * abs(last):
                break
        return loss

    def result(self) -> Params:
        """The parameters in the layout of a group of one: leaves that are not per item get a client axis."""
        self._observe()
        done = {name: value.detach() for name, value in self._params.items()}
        return {name: value if name in self._per_item else value[None] for name, value in done.items()}

    def _epoch(self, moves: list[list[_Step]], order: Tensor, view: View | None) -> float:
        loss_sum = 0.0
        for batch in torch.split(order, self._task.context.batch_size):
            for steps in moves:
                loss, penalty = self._loss(view, batch)
                for step in steps:
                    step.optimizer.zero_grad()
                torch.autograd.backward(loss + penalty)
                for step in steps:
                    step.make()
            loss_sum += float(loss.detach()) * len(batch)
        return loss_sum / len(order)

    def _loss(self, view: View | None, batch: Tensor) -> tuple[Tensor, Tensor | float]:
        method, place, labels = self._task.method, self._place[batch], self._labels[batch]
        seen = {n: value[place] if n in self._per_item else value for n, value in self._params.items()}
        weights = Batch(torch.full_like(labels, 1 / len(labels)), labels / len(labels))
        return method.batch_loss(seen, weights, view), method.penalty(seen, weights, self._task.context, view)

    def _settle(self) -> None:
        view = self._task.method.view
        with torch.no_grad():
            whole = self._params.keys() - self._per_item
            self.settled_with = {name: self._params[name].clone()[None] for name in whole}
            self._params[view.settles].copy_(view.settle(self._params))

    def _observe(self) -> None:
        with torch.no_grad():
            for name, value in self._task.method.view.observe(self._before, self._params).items():
                self._params[name].copy_(value)


@dataclass(frozen=True)
class _Step:
    """An optimizer with its learning rate decay and soft-thresholding."""

    optimizer: Optimizer
    decay: ExponentialLR | None = None
    shrink: float = 0.0

    def make(self) -> None:
        self.optimizer.step()
        if self.decay:
            self.decay.step()
        if self.shrink:
            for values in self.optimizer.param_groups[0]["params"]:
                values.data = functional.softshrink(values.data, self.shrink)


def _optimizer(move: Move, params: Params) -> _Step:
    leaves = [params[name] for name in move.leaves]
    settings = move.optimizer
    if isinstance(settings, Adam):
        return _Step(torch.optim.Adam(leaves, lr=settings.learning_rate, weight_decay=settings.reg))
    sgd = torch.optim.SGD(leaves, lr=settings.learning_rate, weight_decay=settings.reg)
    decay = ExponentialLR(sgd, settings.decay) if settings.decay != 1 else None
    return _Step(sgd, decay, settings.shrink)
