"""Similarity of clients, computed from the tables they sent: cosines and clusters."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from solera.core.mixing import products

_COLUMNS = 16_384  # columns of the clients' tables compared at once
_PASSES = 100  # maximum number of k-means iterations
_STARTS = 5  # k-means runs, of which the best is used


def cosines(tables: Tensor) -> Tensor:
    """⟨Q_u, Q_v⟩ / (‖Q_u‖ ‖Q_v‖) for all pairs of clients' tables [c, n, d], as [c, c].

    The mean table is subtracted before the multiplication and added back in double precision. Otherwise
    nearly equal tables would differ only by rounding errors.
    """
    inner = products(tables)
    along = inner.new_zeros(len(tables))
    for part in torch.split(tables.flatten(1), _COLUMNS, dim=1):
        mean = part.mean(0)
        along += ((part - mean) @ mean).double() + mean.double().square().sum() / 2
    inner += along[:, None] + along
    return _of_unit_length(inner)


def clusters(tables: Tensor, count: int, draw: np.random.Generator, *, by_length: bool = False) -> Tensor:
    """Cluster index, below `count`, of every client's table [c, n, d]: k-means, on inner products alone.

    Tables are compared by the direction of their difference from the mean, because its length depends on how
    much data a client has. With `by_length` they are compared as they are. Returns the best of
    several runs with k-means++ initialization (Arthur & Vassilvitskii 2007). A cluster that becomes empty
    restarts from the mean of all clients.
    """
    inner = products(tables)
    inner = inner if by_length else _of_unit_length(inner)
    runs = [_k_means(inner, count, draw) for _ in range(_STARTS)]
    return min(runs, key=lambda run: run[0])[1]


def _of_unit_length(inner: Tensor) -> Tensor:
    norms = inner.diagonal().clamp(min=0).sqrt()
    return (inner / (norms[:, None] * norms).clamp(min=torch.finfo(inner.dtype).tiny)).fill_diagonal_(1)


def _k_means(inner: Tensor, count: int, draw: np.random.Generator) -> tuple[float, Tensor]:
    """The sum of squared distances to the centres, less Σ ‖Q_u‖², and the centre of every client."""
    centres = _far_apart(inner, count, draw)
    labels = (inner.diagonal()[centres] - 2 * inner[:, centres]).argmin(1)
    for _ in range(_PASSES):
        share = torch.nn.functional.one_hot(labels, count).to(inner)
        share /= share.sum(0).clamp(min=1)
        towards = inner @ share
        best = ((share * towards).sum(0) - 2 * towards).min(1)
        if torch.equal(best.indices, labels):
            break
        labels = best.indices
    return float(best.values.sum()), labels


def _far_apart(inner: Tensor, count: int, draw: np.random.Generator) -> list[int]:
    """Initial centres: clients drawn in proportion to the squared distance to the nearest earlier one."""
    norms = inner.diagonal()
    centres = [int(draw.integers(len(inner)))]
    nearest = torch.full_like(norms, torch.inf)
    while len(centres) < min(count, len(inner)):
        last = centres[-1]
        nearest = nearest.minimum((norms + norms[last] - 2 * inner[last]).clamp(min=0))
        nearest[last] = 0
        reached = nearest.cumsum(0).cpu().numpy()
        further = int(np.searchsorted(reached, draw.random() * reached[-1], side="right"))
        centres.append(min(further, len(inner) - 1))  # no client may be further away
    return centres
