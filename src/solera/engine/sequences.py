"""The plan of a block of clients for one round, for methods that learn from the order of items."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from solera.core.context import Batch, RoundContext
from solera.core.leaf import INPUTS, Params
from solera.core.method import Method
from solera.core.parts import View
from solera.core.types import Ints
from solera.data.sampling import sample
from solera.engine.local_training import Task
from solera.engine.padding import Padding
from solera.engine.plan import StepPlan, steps_of


class Targets(NamedTuple):
    """The positions of one step and the data needed to predict the items there.

    `history` [..., L] are the rows of a client's items up to the last of these positions, oldest first,
    padded if the client has fewer; `drawn` [..., n] counts how often each row was drawn as a negative;
    `weights` [..., places] are 1/√n at the n positions where a client has an item, and 0 elsewhere.
    """

    places: range
    history: Tensor
    drawn: Tensor
    weights: Tensor

    @property
    def items(self) -> Tensor:
        """The rows of the items at these positions."""
        return self.history[..., self.places.start :]


class NextItem(NamedTuple):
    """The loss at every position, and the gradients with respect to the wanted leaves."""

    losses: Tensor  # [..., places]
    gradients: Params


def next_item_gradient(
    method: Method,
    params: Params,
    step: tuple[Targets, Batch],
    context: RoundContext,
    wanted: Collection[str],
    *,
    view: View | None = None,
) -> NextItem:
    """Gradient of the weighted sum of the sampled softmax over all positions, plus the view's penalty."""
    scorer, view, (targets, batch) = method.scorer, view or method.view, step
    where = targets.history.unsqueeze(-1)
    inputs = params[INPUTS].take_along_dim(where, -2)
    memories = scorer.before(inputs, targets.places)
    knows = view.does("gradient")
    moving = {} if knows else {n: params[n].detach().requires_grad_() for n in wanted if n != INPUTS}
    items = view.see(params | moving)
    seen = items.detach()
    scores = memories @ seen.transpose(-1, -2)
    losses, slope = method.loss.value_and_slope(scores, targets.items, targets.drawn)
    slope.mul_(targets.weights.unsqueeze(-1))
    found: Params = {}
    if INPUTS in wanted:
        by_inputs = scorer.input_gradient(slope @ seen, targets.places)
        found[INPUTS] = torch.zeros_like(params[INPUTS]).scatter_add_(
            -2, where.expand_as(by_inputs), by_inputs
        )
    if len(found) == len(wanted):
        return NextItem(losses, found)
    by_items = slope.transpose(-1, -2) @ memories
    if knows:
        return NextItem(losses, found | view.gradient(params, by_items, batch, context))
    penalty = torch.as_tensor(view.penalty(params | moving, batch, context))
    loss = (items * by_items).sum() + penalty.sum()
    gradients = torch.autograd.grad(loss, list(moving.values()))
    return NextItem(losses, found | dict(zip(moving, gradients, strict=True)))


_SCORES_PER_SAMPLE = 32  # scores per allowed sample that a block may have, including padding
_SHORTEST = 0.75  # shortest sequence of a block, relative to its longest, to limit padding,
_SMALL = 1 / 16  # unless the block is smaller than this fraction of the allowed size


def sequence_blocks(lengths: Ints, context: RoundContext, block_samples: int) -> list[Ints]:
    """Indices of clients in blocks of similar length and equally many steps, longest first.

    The size of a block is limited by the scores of a step: places × rows of every client.
    """
    order = np.argsort(-lengths, kind="stable")
    steps = steps_of(lengths, context.batch_size)
    most = block_samples * _SCORES_PER_SAMPLE
    blocks: list[list[int]] = []
    for client in order:
        longest = blocks[-1][0] if blocks else client
        rows = min(lengths[longest] * (1 + context.negatives), context.n_items)
        scores = (len(blocks[-1]) + 1 if blocks else 1) * min(lengths[longest], context.batch_size) * rows
        similar = lengths[client] >= _SHORTEST * lengths[longest] or scores <= _SMALL * most
        if blocks and scores <= most and similar and steps[client] == steps[longest]:
            blocks[-1].append(client)
        else:
            blocks.append([client])
    return [np.array(block) for block in blocks]


@dataclass(frozen=True)
class SequenceStep(StepPlan):
    """One step of a block: some positions of every client's sequence."""

    targets: Targets

    def gradient(
        self, task: Task, seen: Params, wanted: Collection[str], view: View | None
    ) -> tuple[Tensor, Params]:
        """The losses at the positions, and the gradients of loss and penalty by the wanted leaves."""
        step = self.targets, self.batch
        return next_item_gradient(task.method, seen, step, task.context, wanted, view=view)

    def loss(self, task: Task, scores: Tensor) -> Tensor:
        """Every client's mean loss over its positions, [clients], from the output of `gradient`."""
        return (scores * self.targets.weights).sum(-1) / self.sizes.to(scores).sqrt()


class SequencePlan:
    """The rows that a block of clients touches, as a table [clients, width], and the steps it will take.

    Like a `BlockPlan` with whole tables. All clients take equally many steps: some positions at a time,
    oldest first.
    """

    whole = True

    def __init__(self, task: Task, clients: Ints) -> None:
        data, context, device, dtype = task.data, task.context, task.state.device, task.state.dtype
        samples = sample(data, clients, context.negatives, task.seed, context.round)
        owner, lengths = samples.items.rows, samples.positives
        keys, row = np.unique(owner * data.n_items + samples.items.values, return_inverse=True)
        counts = np.bincount(keys // data.n_items, minlength=len(clients))
        width = int(counts.max())
        begin = np.arange(len(clients)) * width
        first = np.cumsum(counts) - counts
        rank = np.arange(len(owner)) - np.repeat(samples.items.offsets[:-1], samples.items.lengths)
        own = rank < lengths[owner]

        self.table_rows = len(clients) * width
        self.client_bounds, self.row_bounds = [0, len(clients)], [0, self.table_rows]
        self.rows = torch.from_numpy(keys % data.n_items).to(device)
        self.row_counts = torch.from_numpy(counts)
        self.real = torch.from_numpy(np.arange(len(keys)) + np.repeat(begin - first, counts)).to(device)
        self.lengths = torch.from_numpy(lengths).to(device)

        place = row - first[owner]  # position in the client's own table
        history = np.zeros((len(clients), int(lengths.max())), dtype=np.int64)
        history[owner[own], rank[own]] = place[own]
        shape = len(clients), width
        drawn, known = (
            np.bincount((begin[owner] + place)[which], minlength=self.table_rows).reshape(shape)
            for which in (~own, own)
        )
        share = 1 / samples.items.lengths[:, None]
        batch = Batch(*(torch.from_numpy(n * share).to(device, dtype) for n in (drawn + known, known)))
        often = torch.from_numpy(drawn).to(device, dtype)
        self._steps = [
            self._step(torch.from_numpy(history[:, :end]).to(device), begin, lengths, batch, often)
            for begin, end in _chunks(history.shape[1], context.batch_size)
        ]

    def _step(self, history: Tensor, begin: int, lengths: Ints, batch: Batch, drawn: Tensor) -> SequenceStep:
        places = range(begin, history.shape[1])
        there = np.arange(places.start, places.stop) < lengths[:, None]
        sizes = there.sum(1)
        weights = torch.from_numpy(there / np.sqrt(sizes)[:, None]).to(drawn)
        targets = Targets(places, history, drawn, weights)
        return SequenceStep(None, batch, torch.from_numpy(sizes).to(drawn.device), 1, targets)

    @cached_property
    def padding(self) -> Padding:
        """Conversion between rows without padding and a padded table."""
        return Padding(self.row_counts, self.rows.device)

    @cached_property
    def owner(self) -> Tensor:
        """The client (its index in the block) of every row of the table."""
        return torch.arange(self.table_rows, device=self.rows.device) // (
            self.table_rows // len(self.row_counts)
        )

    def steps(self, epoch: int) -> Iterator[SequenceStep]:
        """The steps of an epoch, which are the same in every epoch."""
        return iter(self._steps)


def _chunks(length: int, size: int) -> list[tuple[int, int]]:
    return [(begin, min(begin + size, length)) for begin in range(0, length, size)]
