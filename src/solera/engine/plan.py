"""The plan of a block of clients for one round, made before any parameter is read."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from solera.core.context import Batch
from solera.core.leaf import Params
from solera.core.parts import View
from solera.core.types import Ints
from solera.data.sampling import sample, shuffles
from solera.engine.local_training import Task
from solera.engine.padding import Padding


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


class BlockPlan:
    """The rows that a block of clients touches, as one table, and the steps it will take.

    `rows` are item numbers, client after client, ascending within a client; `row_counts` are each client's.
    Clients are ordered largest first, so that those that still have a batch always come first. Clients with
    the same number of steps form a group: `client_bounds` and `row_bounds` are the limits of the groups.

    Clients with at most `whole_up_to` steps are padded to a table [clients, width]. Their batches are not
    much smaller than the table, so a step uses all of it: samples of the same row are merged into one weight,
    rows outside the batch have weight 0, and no gathering or scattering is needed. `real` are the positions
    of the rows that are not padding. Tables of larger clients have no padding; a step gathers its samples.
    """

    def __init__(self, task: Task, clients: Ints, epochs: int, whole_up_to: int) -> None:
        data, context, device = task.data, task.context, task.state.device
        samples = sample(data, clients, context.negatives, task.seed, context.round)
        owner, lengths = samples.items.rows, samples.items.lengths
        keys, row = np.unique(owner * data.n_items + samples.items.values, return_inverse=True)
        counts = np.bincount(keys // data.n_items, minlength=len(clients))
        rank = np.arange(len(owner)) - np.repeat(samples.items.offsets[:-1], lengths)

        steps = steps_of(lengths, context.batch_size)
        self.whole = int(steps[0]) <= whole_up_to
        first = np.cumsum(counts) - counts
        begin = np.arange(len(clients)) * counts.max() if self.whole else first
        self.table_rows = len(clients) * int(counts.max()) if self.whole else len(keys)
        groups = [0, *(np.flatnonzero(np.diff(steps)) + 1).tolist(), len(clients)]
        self.client_bounds = groups
        self.row_bounds = [*begin[groups[:-1]].tolist(), self.table_rows]
        self._group_steps = steps[groups[:-1]]

        self.rows = torch.from_numpy(keys % data.n_items).to(device)
        self.row_counts = torch.from_numpy(counts)
        self.real = torch.from_numpy(np.arange(len(keys)) + np.repeat(begin - first, counts)).to(device)
        self.lengths = torch.from_numpy(lengths).to(device)

        self._place = torch.from_numpy(row + np.repeat(begin - first, lengths)).to(device)
        self._positive = torch.from_numpy(rank < np.repeat(samples.positives, lengths)).to(
            device, task.state.dtype
        )
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
