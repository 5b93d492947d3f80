"""The reference engine: one client at a time, ordinary torch optimisers. The specification.

Whatever another engine does faster must come out as it does here.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ExponentialLR

from solera.core.choices import Adam, Move, View
from solera.core.context import Batch
from solera.core.method import Method
from solera.core.spec import Home, Params
from solera.core.upload import Upload
from solera.data.ragged import Ints
from solera.data.sampling import sample, shuffles
from solera.engine.simulation import ClientResult, State, Task


def train_one_by_one(task: Task, clients: Ints) -> Iterator[ClientResult]:
    """Train every client alone, in the given order."""
    for client in clients:
        yield _train_client(task, int(client))


def _train_client(task: Task, client: int) -> ClientResult:
    method, context, seed = task.method, task.context, task.seed
    who = np.array([client])
    samples = sample(task.data, who, context.negatives, seed, context.round)
    items, place = np.unique(samples.items.values, return_inverse=True)
    rows, place_of = torch.from_numpy(items), torch.from_numpy(place)
    labels = (torch.arange(len(place)) < int(samples.positives[0])).to(task.state.dtype)

    before = _start(method, task.state, client, rows)
    params = {name: value.clone().requires_grad_() for name, value in before.items()}
    stages = method.update.stages(context)
    orders = shuffles(samples.items.lengths, who, sum(s.epochs for s in stages), seed, context.round)
    epochs = iter(torch.from_numpy(orders))
    loss_sum = 0.0
    for stage in stages:
        moves = [[_optimizer(part, params) for part in move.parts] for move in stage.moves]
        for _ in range(stage.epochs):
            loss_sum = 0.0
            for batch in next(epochs).split(context.batch_size):
                for optimizers in moves:
                    loss, penalty = _loss(task, stage.view, params, place_of[batch], labels[batch])
                    for optimizer, _decay in optimizers:
                        optimizer.zero_grad()
                    torch.autograd.backward(loss + penalty)
                    for optimizer, decay in optimizers:
                        optimizer.step()
                        if decay:
                            decay.step()
                loss_sum += float(loss.detach()) * len(batch)

    before = _one_client(method, before)
    after = _one_client(method, {name: value.detach() for name, value in params.items()})
    upload = Upload.declared(method.leaves, rows, torch.tensor([len(rows)]), before, after)
    return ClientResult(who, upload, after, torch.tensor([loss_sum / len(place)], dtype=task.state.dtype))


def _start(method: Method, state: State, client: int, rows: Tensor) -> Params:
    """The client's parameters before training, per-item leaves cut to the rows it touches."""
    start = {}
    for leaf in method.leaves:
        if leaf.home is Home.SHARED:
            start[leaf.name] = state.shared[leaf.name][rows] if leaf.per_item else state.shared[leaf.name]
        elif leaf.per_item:
            start[leaf.name] = state.personal.get_rows(leaf.name, client, rows)
        else:
            start[leaf.name] = state.personal.whole[leaf.name][client]
    return start


def _optimizer(move: Move, params: Params) -> tuple[Optimizer, ExponentialLR | None]:
    """The optimiser of a move, and what lowers its rate after every step, if anything does."""
    leaves = [params[name] for name in move.leaves]
    settings = move.optimizer
    if isinstance(settings, Adam):
        return torch.optim.Adam(leaves, lr=settings.learning_rate, weight_decay=settings.reg), None
    sgd = torch.optim.SGD(leaves, lr=settings.learning_rate, weight_decay=settings.reg)
    return sgd, ExponentialLR(sgd, settings.decay) if settings.decay != 1 else None


def _loss(
    task: Task, view: View | None, params: Params, place: Tensor, labels: Tensor
) -> tuple[Tensor, Tensor | float]:
    per_item = {leaf.name for leaf in task.method.select(per_item=True)}
    seen = {name: value[place] if name in per_item else value for name, value in params.items()}
    batch = Batch(torch.full_like(labels, 1 / len(labels)), labels / len(labels))
    return task.method.loss(seen, batch, view), task.method.penalty(seen, batch, task.context, view)


def _one_client(method: Method, params: Params) -> Params:
    """The same parameters as those of a group of one: leaves that are not per item get a client axis."""
    whole = {leaf.name for leaf in method.select(per_item=False)}
    return {name: value[None] if name in whole else value for name, value in params.items()}
