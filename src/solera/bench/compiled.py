"""FedMF with Adam as a hand-written compiled loop over clients: what the block engine is measured against.

The same samples, batches and arithmetic as the engines', client by client, in numba, on one core. It exists
to be fast and to be compared with; nothing else uses it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numba
import numpy as np
import torch

from solera.core.arrays import Ints
from solera.core.upload import Upload
from solera.data.sampling import sample, shuffles
from solera.engine.local_training import ClientResult, Task


def train_compiled(task: Task, clients: Ints) -> Iterator[ClientResult]:
    """Local training of FedMF (Adam, no reg, single precision, CPU) for all clients in one go."""
    data, context = task.data, task.context
    samples = sample(data, clients, context.negatives, task.seed, context.round)
    owner, offsets = samples.items.rows, samples.items.offsets
    keys, place = np.unique(owner * data.n_items + samples.items.values, return_inverse=True)
    counts = np.bincount(keys // data.n_items, minlength=len(clients))
    row_offsets = np.concatenate([[0], np.cumsum(counts)])
    labels = (np.arange(len(owner)) - offsets[owner] < samples.positives[owner]).astype(np.float32)
    orders = shuffles(samples.items.lengths, clients, context.local_epochs, task.seed, context.round)

    rows = torch.from_numpy(keys % data.n_items)
    before = {
        "items": task.state.shared["items"].index_select(0, rows),
        "user": task.state.personal.whole["user"][torch.from_numpy(clients)],
    }
    after = {name: value.clone() for name, value in before.items()}
    train_clients(
        place - row_offsets[owner],
        labels,
        offsets,
        orders,
        row_offsets,
        after["items"].numpy(),
        after["user"].numpy(),
        context.batch_size,
        context.hyper["learning_rate"],
    )
    upload = Upload.declared(task.method.leaves, rows, torch.from_numpy(counts), before, after)
    yield ClientResult(clients, upload, after, torch.zeros(len(clients)))


@numba.njit(fastmath=True, cache=True)
def train_clients(  # noqa: PLR0917 - numba takes no keywords here
    place: Any,  # [samples] row of each sample within its client
    labels: Any,  # [samples] 1 or 0
    offsets: Any,  # [clients + 1] where each client's samples start
    orders: Any,  # [epochs, samples] sample numbers, shuffled within each client
    row_offsets: Any,  # [clients + 1] where each client's rows start
    items: Any,  # [rows, d] each client's copy of the rows it touches; changed in place
    users: Any,  # [clients, d]; changed in place
    batch_size: int,
    learning_rate: float,
) -> None:
    """Adam on binary cross-entropy, batch after batch, client after client."""
    beta_1, beta_2, eps = np.float32(0.9), np.float32(0.999), np.float32(1e-8)
    one = np.float32(1.0)
    d = items.shape[1]
    most = np.max(np.diff(row_offsets))
    gradient = np.zeros((most + 1, d), np.float32)
    mean = np.zeros((most + 1, d), np.float32)
    square = np.zeros((most + 1, d), np.float32)
    params = np.zeros((most + 1, d), np.float32)
    for c in range(len(offsets) - 1):
        rows = row_offsets[c + 1] - row_offsets[c]
        params[:rows] = items[row_offsets[c] : row_offsets[c + 1]]
        params[rows] = users[c]  # the user vector is one more row
        mean[: rows + 1] = 0
        square[: rows + 1] = 0
        step = 0
        for epoch in range(orders.shape[0]):
            for start in range(offsets[c], offsets[c + 1], batch_size):
                end = min(start + batch_size, offsets[c + 1])
                gradient[: rows + 1] = 0
                scale = one / np.float32(end - start)
                for s in range(start, end):
                    sample = orders[epoch, s]
                    row = place[sample]
                    score = np.float32(0.0)
                    for k in range(d):
                        score += params[row, k] * params[rows, k]
                    slope = (one / (one + math.exp(-score)) - labels[sample]) * scale
                    for k in range(d):
                        gradient[row, k] += slope * params[rows, k]
                        gradient[rows, k] += slope * params[row, k]
                step += 1
                rate = np.float32(learning_rate / (1.0 - 0.9**step))
                root = np.float32(1.0 / math.sqrt(1.0 - 0.999**step))
                for r in range(rows + 1):
                    for k in range(d):
                        g = gradient[r, k]
                        m = beta_1 * mean[r, k] + (one - beta_1) * g
                        v = beta_2 * square[r, k] + (one - beta_2) * g * g
                        mean[r, k] = m
                        square[r, k] = v
                        params[r, k] -= rate * m / (np.sqrt(v) * root + eps)
        items[row_offsets[c] : row_offsets[c + 1]] = params[:rows]
        users[c] = params[rows]
