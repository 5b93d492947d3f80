"""The plan of a block of clients for one round, made before any parameter is read.

A block learns from single items (`BlockPlan`) or from the order of items (`SequencePlan`).
"""

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
from solera.data.sampling import Samples, sample, shuffles
from solera.engine.local_training import Task
from solera.engine.row_store import Padding


@dataclass(frozen=True)
class StepPlan:
    """One step of a block: the table positions it reads (None: all of them) and their weights.

    Only the block's first `len(sizes)` clients, which are its largest, still have a batch.
    """

    place: Tensor | None
    batch: Batch  # [clients, samples]
    sizes: Tensor  # [clients], number of samples of each client
    marching: int  # number of the block's groups of clients that take this step

    def gradient(
        self, task: Task, seen: Params, wanted: Collection[str], view: View | None
    ) -> tuple[Tensor, Params]:
        """The scores, and the gradients of loss and penalty by the wanted leaves."""
        return task.method.gradient(seen, self.batch, task.context, wanted, view)

    def loss(self, task: Task, scores: Tensor) -> Tensor:
        """Every client's mean loss, [clients]."""
        return task.method.loss.value(scores, self.batch)


class _Table:
    """The rows that a block of clients touches, as one table.

    `rows` are item numbers, client after client, ascending within a client; `row_counts` are each client's.
    A `whole` table is padded to [clients, width], and `real` are the positions of the rows that are not
    padding.
    """

    def __init__(self, task: Task, samples: Samples, *, whole: bool) -> None:
        owner, n_items, device = samples.items.rows, task.data.n_items, task.state.device
        clients = len(samples.items)
        keys, row = np.unique(owner * n_items + samples.items.values, return_inverse=True)
        counts = np.bincount(keys // n_items, minlength=clients)
        width = int(counts.max())
        first = np.cumsum(counts) - counts
        self._begin = np.arange(clients) * width if whole else first  # of every client
        self._places = row + np.repeat(self._begin - first, samples.items.lengths)  # of every sample
        self.whole, self.table_rows = whole, clients * width if whole else len(keys)
        self.rows = torch.from_numpy(keys % n_items).to(device)
        self.row_counts = torch.from_numpy(counts)
        self.real = torch.from_numpy(np.arange(len(keys)) + np.repeat(self._begin - first, counts)).to(device)

    @cached_property
    def padding(self) -> Padding:
        """Conversion between rows without padding and a padded table."""
        return Padding(self.row_counts, self.rows.device)

    @cached_property
    def owner(self) -> Tensor:
        """The client (its index in the block) of every row of the table."""
        if self.whole:
            width = self.table_rows // len(self.row_counts)
            return torch.arange(self.table_rows, device=self.rows.device) // width
        clients = torch.arange(len(self.row_counts))
        return clients.repeat_interleave(self.row_counts).to(self.rows.device)


class BlockPlan(_Table):
    """The table of a block that learns from items, and the steps it will take.

    Clients are ordered largest first, so that those that still have a batch always come first. Clients with
    the same number of steps form a group: `client_bounds` and `row_bounds` are the limits of the groups.

    The table of clients with at most `whole_up_to` steps is whole. Their batches are not much smaller than
    the table, so a step uses all of it: samples of the same row are merged into one weight, rows outside the
    batch have weight 0, and no gathering or scattering is needed. Tables of larger clients have no padding; a
    step gathers its samples.
    """

    def __init__(self, task: Task, clients: Ints, epochs: int, whole_up_to: int) -> None:
        data, context, device = task.data, task.context, task.state.device
        samples = sample(data, clients, context.negatives, task.seed, context.round)
        owner, lengths, rank = samples.items.rows, samples.items.lengths, samples.places
        steps = steps_of(lengths, context.batch_size)
        super().__init__(task, samples, whole=int(steps[0]) <= whole_up_to)
        groups = [0, *(np.flatnonzero(np.diff(steps)) + 1).tolist(), len(clients)]
        self.client_bounds = groups
        self.row_bounds = [*self._begin[groups[:-1]].tolist(), self.table_rows]
        self._group_steps = steps[groups[:-1]]
        self.lengths = torch.from_numpy(lengths).to(device)
        self._place = torch.from_numpy(self._places).to(device)
        self._positive = torch.from_numpy(samples.are_positive).to(device, task.state.dtype)
        self._sizes = [
            np.minimum(lengths[lengths > start] - start, context.batch_size)
            for start in range(0, int(lengths[0]), context.batch_size)
        ]
        self._one_batch: StepPlan | None = None
        if self.whole:
            step = rank // context.batch_size
            weights = 1 / np.stack(self._sizes)[step, owner]
            self._first = torch.from_numpy(step * self.table_rows).to(device)
        else:
            layout, weights = _layout(lengths, self._sizes, context.batch_size)
        self._weights = torch.from_numpy(weights).to(device, task.state.dtype)
        if self.whole and len(self._sizes) == 1:  # the step does not depend on the order
            (self._one_batch,) = self._of_whole_table(self._place, self._positive * self._weights)
            return
        orders = shuffles(lengths, data.drawn_by(clients), epochs, task.seed, context.round)
        self._orders = torch.from_numpy(orders if self.whole else orders[:, layout]).to(device)

    def steps(self, epoch: int) -> Iterator[StepPlan]:
        """The steps of an epoch."""
        if self._one_batch is not None:
            return iter((self._one_batch,))
        order = self._orders[epoch]
        place = self._place.index_select(0, order)
        positives = self._positive.index_select(0, order).mul_(self._weights)
        return self._of_whole_table(place, positives) if self.whole else self._gathered(place, positives)

    def _of_whole_table(self, place: Tensor, positives: Tensor) -> Iterator[StepPlan]:
        place = place + self._first
        shape = len(self._sizes), len(self.row_counts), -1
        empty = positives.new_zeros(2, len(self._sizes) * self.table_rows)
        all_weights = empty[0].index_add_(0, place, self._weights).view(shape)
        all_positives = empty[1].index_add_(0, place, positives).view(shape)
        for weights, positive, sizes in zip(all_weights, all_positives, self._sizes, strict=True):
            yield StepPlan(None, Batch(weights, positive), torch.from_numpy(sizes).to(place.device), 1)

    def _gathered(self, place: Tensor, positives: Tensor) -> Iterator[StepPlan]:
        end = 0
        for number, sizes in enumerate(self._sizes):
            start, end = end, end + len(sizes) * int(sizes.max())
            shape = len(sizes), -1
            batch = Batch(self._weights[start:end].view(shape), positives[start:end].view(shape))
            marching = int((self._group_steps > number).sum())
            yield StepPlan(place[start:end], batch, torch.from_numpy(sizes).to(place.device), marching)


def steps_of(samples: Ints, batch_size: int) -> Ints:
    """The number of batches of each client."""
    return -(-samples // batch_size)


def _layout(
    lengths: Ints, sizes: list[Ints], batch_size: int
) -> tuple[Ints, np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """The positions and weights of all steps' samples, step after step, client after client.

    A batch that is shorter than the longest of its step is padded with the client's last sample, with weight
    0.
    """
    offsets = np.cumsum(lengths) - lengths
    positions, weights = [], []
    for number, size in enumerate(sizes):
        n = len(size)
        columns = number * batch_size + np.arange(size.max())
        positions.append((offsets[:n, None] + np.minimum(columns, lengths[:n, None] - 1)).ravel())
        weights.append(((columns < lengths[:n, None]) / size[:, None]).ravel())
    return np.concatenate(positions), np.concatenate(weights)


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


class SequencePlan(_Table):
    """The table of a block that learns from the order of items, and the steps it will take.

    All clients take equally many steps: some positions at a time, oldest first.
    """

    def __init__(self, task: Task, clients: Ints) -> None:
        data, context, device, dtype = task.data, task.context, task.state.device, task.state.dtype
        samples = sample(data, clients, context.negatives, task.seed, context.round)
        super().__init__(task, samples, whole=True)
        owner, own, lengths = samples.items.rows, samples.are_positive, samples.positives
        self.client_bounds, self.row_bounds = [0, len(clients)], [0, self.table_rows]
        self.lengths = torch.from_numpy(lengths).to(device)
        history = np.zeros((len(clients), int(lengths.max())), dtype=np.int64)
        history[owner[own], samples.places[own]] = (self._places - self._begin[owner])[own]
        drawn, known = (
            np.bincount(self._places[which], minlength=self.table_rows).reshape(len(clients), -1)
            for which in (~own, own)
        )
        share = 1 / samples.items.lengths[:, None]
        batch = Batch(*(torch.from_numpy(n * share).to(device, dtype) for n in (drawn + known, known)))
        often, size = torch.from_numpy(drawn).to(device, dtype), context.batch_size
        self._steps = [
            self._step(torch.from_numpy(history[:, : begin + size]).to(device), begin, lengths, batch, often)
            for begin in range(0, history.shape[1], size)
        ]

    def _step(self, history: Tensor, begin: int, lengths: Ints, batch: Batch, drawn: Tensor) -> SequenceStep:
        places = range(begin, history.shape[1])
        there = np.arange(places.start, places.stop) < lengths[:, None]
        sizes = there.sum(1)
        weights = torch.from_numpy(there / np.sqrt(sizes)[:, None]).to(drawn)
        targets = Targets(places, history, drawn, weights)
        return SequenceStep(None, batch, torch.from_numpy(sizes).to(drawn.device), 1, targets)

    def steps(self, epoch: int) -> Iterator[SequenceStep]:
        """The steps of an epoch, which are the same in every epoch."""
        return iter(self._steps)
