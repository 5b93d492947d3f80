"""What a block of clients will do in a round, before any parameter is looked at."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from solera.core.method import Batch
from solera.data.ragged import Ints
from solera.data.sampling import sample, shuffles
from solera.engine.simulation import State, Task


class BlockPlan:
    """The rows a block of clients touches, one client after the other, and its batches as places in them.

    All clients take the same number of steps. `rows` are item numbers, ascending within a client;
    `row_counts` says how many are each client's; `lengths` are the clients' numbers of samples.
    """

    def __init__(self, task: Task, clients: Ints, epochs: int) -> None:
        data, context, device, dtype = task.data, task.context, task.state.device, task.state.dtype
        samples = sample(data, clients, context.negatives, task.seed, context.round)
        owner, offsets = samples.items.rows, samples.items.offsets
        keys, place = np.unique(owner * data.n_items + samples.items.values, return_inverse=True)
        lengths = samples.items.lengths
        positive = np.arange(len(owner)) - offsets[owner] < samples.positives[owner]
        orders = shuffles(lengths, clients, epochs, task.seed, context.round)

        self.rows = torch.from_numpy(keys % data.n_items).to(device)
        self.row_counts = torch.from_numpy(np.bincount(keys // data.n_items, minlength=len(clients)))
        self.lengths = torch.from_numpy(lengths).to(device)
        self._place = torch.from_numpy(place).to(device)
        self._labels = torch.from_numpy(positive).to(device, dtype)
        self._orders = torch.from_numpy(orders).to(device)
        self._steps = [
            _Window(offsets[:-1], lengths, start, context.batch_size, task.state)
            for start in range(0, int(lengths.max()), context.batch_size)
        ]

    def batches(self, epoch: int) -> Iterator[tuple[Tensor, Batch, Tensor]]:
        """Every step's places [clients × batch], its batch [clients, batch], and its samples per client."""
        order = self._orders[epoch]
        place, labels = self._place.index_select(0, order), self._labels.index_select(0, order)
        for step in self._steps:
            batch = Batch(labels.index_select(0, step.source).view_as(step.weights), step.weights)
            yield place.index_select(0, step.source), batch, step.sizes


class _Window:
    """One step's part of every client's samples."""

    def __init__(self, offsets: Ints, lengths: Ints, start: int, size: int, state: State) -> None:
        columns = start + np.arange(min(size, int(lengths.max()) - start))
        real = columns[None] < lengths[:, None]
        # Padding repeats the client's last sample with weight 0.
        source = offsets[:, None] + np.minimum(columns[None], lengths[:, None] - 1)
        sizes = real.sum(1)
        self.source = torch.from_numpy(source.ravel()).to(state.device)
        self.sizes = torch.from_numpy(sizes).to(state.device)
        self.weights = torch.from_numpy(real / sizes[:, None]).to(state.device, state.dtype)
