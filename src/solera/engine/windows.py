"""Gradients over windows of clients' histories: of single clients, or summed over many in one batch.

A window is at most `max_length` + 1 items that follow one another. Each is predicted from those before it in
the window, the first from nothing. Half of the windows of a longer history are the latest one, the others
begin anywhere.

A client's gradient is that of the mean loss over its window. Weighted by the numbers of items in windows, the
mean over the clients of a round is the gradient of a mini-batch with one row per client.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from solera.core.leaf import Params
from solera.core.randomness import Bits, Purpose, below, client_keys, draws, uniform
from solera.core.types import Floats, Ints
from solera.core.upload import Sums, Upload
from solera.data.ragged import Ragged
from solera.engine.local_training import ClientResult, SummedResult, Task

PLACES = 8192  # of a batch: enough to hide the overhead of torch, few enough for the cache
_SHORTEST = 0.75  # shortest window of a batch, relative to its longest, to limit padding,
_SMALL = 1 / 4  # unless the batch is smaller than this fraction of the allowed size


class Windows(NamedTuple):
    """One window per client: items [clients, length], oldest first, padded at the end."""

    items: Tensor
    lengths: Ints

    @property
    def real(self) -> Tensor:
        """Mask [clients, length] of the items that are no padding."""
        lengths = torch.from_numpy(self.lengths).to(self.items.device)
        return torch.arange(self.items.shape[1], device=self.items.device) < lengths[:, None]


def begins(lengths: Ints, max_length: int, bits: Bits) -> Ints:
    """Where in their histories clients' windows begin, given two draws each."""
    latest = np.maximum(lengths - max_length - 1, 0)
    first, second = bits.reshape(-1, 2).T
    begin: Ints = np.where(uniform(first) < 0.5, latest, below(second, latest + 1))
    return begin


class ClientDropout:
    """Dropout, to 1/65536. Every client has its own draws, whoever else is in the batch."""

    def __init__(self, rate: float, keys: Bits, lengths: Ints) -> None:
        self._least = round(65536 * rate)
        self._lengths = lengths
        self._draws = [np.random.default_rng(key) for key in keys] if rate else []

    def __call__(self, x: Tensor) -> Tensor:
        """Set some of the numbers to zero, and scale the others."""
        if not self._draws:
            return x
        kept = np.zeros(x.shape, dtype=np.bool_)
        for row, draw, length in zip(kept, self._draws, self._lengths, strict=True):
            row[:length] = draw.integers(65536, size=row[:length].shape, dtype=np.uint16) >= self._least
        return x * torch.from_numpy(kept) / (1 - self._least / 65536)


def upload_numbers(task: Task) -> int:
    """How many numbers a client sends, at most."""
    rows = min(task.data.n_items, task.context.negatives + int(task.data.train.lengths.max()))
    return sum(leaf.size * (rows if leaf.per_item else 1) for leaf in task.method.leaves)


def window_batches(lengths: Ints, places: int, clients: int) -> list[Ints]:
    """Indices of clients in batches of similar length, longest first.

    A batch has at most so many places, with padding, and so many clients.
    """
    batches: list[list[int]] = []
    for client in np.argsort(-lengths, kind="stable"):
        longest = lengths[batches[-1][0]] if batches else 0
        size = (len(batches[-1]) + 1) * longest if batches else 0
        similar = lengths[client] >= _SHORTEST * longest or size <= _SMALL * places
        if batches and size <= places and similar and len(batches[-1]) < clients:
            batches[-1].append(client)
        else:
            batches.append([client])
    return [np.array(batch) for batch in batches]


def single_gradients(task: Task, clients: Ints) -> ClientResult:
    """Every client's own gradient, one after the other, as an upload of the rows that it touches."""
    changes: dict[str, list[Tensor]] = {leaf.sent_as: [] for leaf in task.method.leaves}
    rows, losses = [], []
    for client in clients:
        found = _gradient(task, np.array([client]), np.ones(1))
        where = torch.from_numpy(_touched(task, found.windows).values).to(task.state.device)
        for leaf in task.method.leaves:
            change = found.by[leaf.name]
            changes[leaf.sent_as].append(change.index_select(0, where) if leaf.per_item else change[None])
        rows.append(where)
        losses.append(found.losses)
    counts = torch.tensor([len(each) for each in rows])
    joined = {name: torch.cat(values) for name, values in changes.items()}
    return ClientResult(clients, Upload(torch.cat(rows), counts, joined), {}, torch.cat(losses))


def summed_gradients(task: Task, clients: Ints) -> SummedResult:
    """The weighted sum of clients' gradients, computed in one batch."""
    weights = task.method.weights(task.data.train.lengths[clients], task.data.n_items)
    found = _gradient(task, clients, weights)
    own, device = _touched(task, found.windows), task.state.device
    of_rows = np.bincount(own.values, np.repeat(weights, own.lengths), minlength=task.data.n_items)
    rows = np.flatnonzero(of_rows)
    where = torch.from_numpy(rows).to(device)
    changes = {
        leaf.sent_as: found.by[leaf.name].index_select(0, where) if leaf.per_item else found.by[leaf.name]
        for leaf in task.method.leaves
    }
    sums = Sums(where, torch.from_numpy(of_rows[rows]).to(device), float(weights.sum()), changes)
    return SummedResult(sums, torch.from_numpy(own.values), torch.from_numpy(own.lengths), found.losses)


def _touched(task: Task, windows: Windows) -> Ragged:
    """The rows that each client sends, ascending: those of its window and of the round's negatives."""
    own = Ragged.of_lengths(windows.lengths, windows.items[windows.real].cpu().numpy())
    loss, clients = task.method.loss, len(own)
    drawn = loss.drawn(task.context)
    rows = np.arange(task.data.n_items) if drawn is None else drawn.numpy()
    sent = Ragged.of_lengths(np.full(clients, len(rows)), np.tile(rows, clients))
    return sent if drawn is None else own.concat(sent).sorted_unique()


def windows_of(task: Task, clients: Ints) -> Windows:
    """The windows that clients learn from in a round."""
    scorer, histories = task.method.scorer, task.data.train.take(clients)
    keys = client_keys(task.seed, Purpose.SHUFFLE, task.context.round, task.data.drawn_by(clients))
    begin = begins(histories.lengths, scorer.max_length, draws(keys, np.full(len(clients), 2)))
    lengths = np.minimum(histories.lengths, scorer.max_length + 1)
    place = np.arange(lengths.max()) + (histories.offsets[:-1] + begin)[:, None]
    items = histories.values[np.minimum(place, len(histories.values) - 1)]
    return Windows(torch.from_numpy(items).long().to(task.state.device), lengths)


class _Gradient(NamedTuple):
    """What a step of size 1 changes, and the clients' mean losses."""

    by: Params
    losses: Tensor
    windows: Windows


def _gradient(task: Task, clients: Ints, weights: Floats) -> _Gradient:
    """The negative gradient of the weighted sum of the clients' mean losses, by every leaf."""
    method, scorer, loss = task.method, task.method.scorer, task.method.loss
    windows = windows_of(task, clients)
    keys = client_keys(task.seed, Purpose.DROPOUT, task.context.round, task.data.drawn_by(clients))
    drop = ClientDropout(task.context.hyper["dropout"], keys, windows.lengths)
    params = {name: value.detach().requires_grad_() for name, value in task.state.shared.items()}
    states, real = scorer.states(params, windows.items[:, :-1], drop), windows.real
    each = torch.from_numpy(weights / windows.lengths).to(states)[:, None].expand(real.shape)[real]
    drawn = loss.drawn(task.context)
    negatives = None if drawn is None else drawn.to(states.device)
    targets = windows.items[real]
    total, losses = loss.losses(states[real], method.view.see(params), targets, each, negatives)
    gradients = torch.autograd.grad(total, list(params.values()))
    of_clients = states.new_zeros(real.shape).masked_scatter_(real, losses).sum(1)
    by = {name: value.neg_() for name, value in zip(params, gradients, strict=True)}
    return _Gradient(by, of_clients / torch.from_numpy(windows.lengths).to(of_clients), windows)
