"""What a block of clients will do in a round, before any parameter is looked at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from solera.core.method import Batch
from solera.data.ragged import Ints
from solera.data.sampling import sample, shuffles
from solera.engine.simulation import State, Task

WHOLE_UP_TO = 3.0  # rows per sample of a batch up to which a step takes the whole table; measured


class StepPlan(NamedTuple):
    """One step of a block: the places of the table it looks at (None: all of them), and how they weigh."""

    place: Tensor | None
    batch: Batch  # [clients, samples]
    sizes: Tensor  # [clients], samples of each client


class BlockPlan:
    """The rows a block of clients touches, as a table [clients, width], and the steps it will take.

    Row r of client c stands at place c · width + r. `rows` are item numbers, client after client, ascending
    within a client; `row_counts` are each client's; `real` are their places (the others are padding);
    `lengths` are the clients' numbers of samples. All clients take the same number of steps.
    """

    def __init__(self, task: Task, clients: Ints, epochs: int) -> None:
        data, context, state = task.data, task.context, task.state
        samples = sample(data, clients, context.negatives, task.seed, context.round)
        owner, lengths = samples.items.rows, samples.items.lengths
        keys, row = np.unique(owner * data.n_items + samples.items.values, return_inverse=True)
        counts = np.bincount(keys // data.n_items, minlength=len(clients))
        width = int(counts.max())
        shift = np.arange(len(clients)) * width - (np.cumsum(counts) - counts)
        rank = np.arange(len(owner)) - samples.items.offsets[owner]

        self.shape = len(clients), width
        self.rows = torch.from_numpy(keys % data.n_items).to(state.device)
        self.row_counts = torch.from_numpy(counts)
        self.real = torch.from_numpy(np.arange(len(keys)) + np.repeat(shift, counts)).to(state.device)
        self.lengths = torch.from_numpy(lengths).to(state.device)
        self.steps = _Steps(
            place=torch.from_numpy(row + shift[owner]).to(state.device),
            positive=torch.from_numpy(rank < samples.positives[owner]).to(state.device, state.dtype),
            orders=shuffles(lengths, clients, epochs, task.seed, context.round),
            lengths=lengths,
            batch_size=context.batch_size,
            shape=self.shape,
            state=state,
        )


class _Steps:
    """Turns the shuffled samples of an epoch into steps.

    A step either gathers its samples from the table or, where a batch is not much smaller than the table,
    takes the table as it stands: samples of the same row collapse into one weight, rows that are not in the
    batch weigh nothing, and gathering and scattering disappear.
    """

    def __init__(
        self,
        *,
        place: Tensor,
        positive: Tensor,
        orders: Ints,
        lengths: Ints,
        batch_size: int,
        shape: tuple[int, int],
        state: State,
    ) -> None:
        self._place, self._positive, self._shape = place, positive, shape
        offsets = np.cumsum(lengths) - lengths
        starts = range(0, int(lengths.max()), batch_size)
        sizes = [np.minimum(lengths - start, batch_size) for start in starts]
        self._sizes = [torch.from_numpy(size).to(state.device) for size in sizes]
        self._whole = shape[1] <= WHOLE_UP_TO * int(sizes[0].max())
        if self._whole:
            rank = np.arange(orders.shape[1]) - np.repeat(offsets, lengths)
            step, owner = rank // batch_size, np.repeat(np.arange(len(lengths)), lengths)
            self._first = torch.from_numpy(step * shape[0] * shape[1]).to(state.device)
            weights = 1 / np.stack(sizes)[step, owner]
        else:
            # Padding repeats a client's last sample, and weighs nothing.
            columns = [start + np.arange(size.max()) for start, size in zip(starts, sizes, strict=True)]
            source = [offsets[:, None] + np.minimum(c, lengths[:, None] - 1) for c in columns]
            real = [(c < lengths[:, None]) / size[:, None] for c, size in zip(columns, sizes, strict=True)]
            orders = orders[:, np.concatenate([s.ravel() for s in source])]
            weights = np.concatenate([w.ravel() for w in real])
        self._orders = torch.from_numpy(orders).to(state.device)
        self._weights = torch.from_numpy(weights).to(state.device, state.dtype)

    def of_epoch(self, epoch: int) -> Iterator[StepPlan]:
        """The steps of an epoch."""
        order = self._orders[epoch]
        place = self._place.index_select(0, order)
        positives = self._positive.index_select(0, order).mul_(self._weights)
        return self._whole_steps(place, positives) if self._whole else self._gathered(place, positives)

    def _whole_steps(self, place: Tensor, positives: Tensor) -> Iterator[StepPlan]:
        place += self._first
        shape = (len(self._sizes), *self._shape)
        empty = torch.zeros(2, shape[0] * shape[1] * shape[2], dtype=positives.dtype, device=positives.device)
        all_weights = empty[0].index_add_(0, place, self._weights).view(shape)
        all_positives = empty[1].index_add_(0, place, positives).view(shape)
        for weights, positive, sizes in zip(all_weights, all_positives, self._sizes, strict=True):
            yield StepPlan(None, Batch(weights, positive), sizes)

    def _gathered(self, place: Tensor, positives: Tensor) -> Iterator[StepPlan]:
        end, clients = 0, self._shape[0]
        for sizes in self._sizes:
            start, end = end, end + clients * int(sizes.max())
            batch = Batch(self._weights[start:end].view(clients, -1), positives[start:end].view(clients, -1))
            yield StepPlan(place[start:end], batch, sizes)
