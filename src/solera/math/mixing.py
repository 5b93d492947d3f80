"""Similarity of clients by the tables they sent, and personalized tables mixed from all clients' tables.

All pairs of clients' tables cost clients² × items. If there are many clients, sketches of their tables are
compared instead, and mixing weights that are nearly of low rank are applied by their factors.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

LONG = 2_000  # entries of a row above which it is projected by passes
SKETCH = 4_096  # numbers of a sketched table: a squared distance is off by 2 % (one standard deviation)
_RANK = 64
_REPEATED = 8
# Norm of what factors may leave out of the weights, of which every row adds up to 1. GPFedRec's graphs of
# sketched tables differ by 0.05 to 1 from those of whole ones, so such factors add little to the error.
_NEGLIGIBLE, _NEGLIGIBLE_IF_SKETCHED = 0.002, 0.05
_COLUMNS = 4_096  # columns of the clients' tables compared at once
_ROWS = 512  # rows projected at once


def products(tables: Tensor) -> Tensor:
    """Inner products [c, c] of clients' tables [c, n, d] after subtracting the mean table."""
    flat = tables.flatten(1)
    total = flat.new_zeros(len(flat), len(flat), dtype=torch.float64)
    for part in torch.split(flat, _COLUMNS, dim=1):
        centred = part - part.mean(0)
        total += centred @ centred.T
    return total


def sketched(tables: Tensor) -> Tensor:
    """Sketches [c, m, d] of tables [c, n, d], whose inner products are those of the tables on average.

    A sketch has about SKETCH numbers. Every number of a table gets a random sign and is added to one of
    them, in turn (Charikar, Chen & Farach-Colton 2002). The signs are the same for all clients and rounds.
    """
    flat, d = tables.flatten(1), tables.shape[2]
    rows = -(-SKETCH // d)
    draw = torch.Generator().manual_seed(0)
    total = flat.new_zeros(len(flat), rows * d)
    for part in torch.split(flat, rows * d, dim=1):
        signs = torch.randint(0, 2, (part.shape[1],), generator=draw).to(flat) * 2 - 1
        total[:, : part.shape[1]].addcmul_(part, signs.expand_as(part))
    return total.view(len(flat), rows, d)


class Factored(NamedTuple):
    """Mixing weights diag(own) + left · right."""

    own: Tensor  # [c]
    left: Tensor  # [c, r]
    right: Tensor  # [r, c]

    def __matmul__(self, tables: Tensor) -> Tensor:
        """The mixed tables."""
        return torch.addmm(self.own[:, None] * tables, self.left, self.right @ tables)


def factored(mixing: Tensor, *, of_sketches: bool = False) -> Factored | None:
    """Mixing weights [c, c] as a diagonal and factors of low rank, or None if these would miss something.

    They may miss more if the weights come from sketches of the tables.
    A randomized range finder with one power iteration (Halko, Martinsson & Tropp 2011). It is repeated with
    the diagonal of the factors, because what a client takes of its own table fits no low rank.
    """
    draw = torch.Generator().manual_seed(0)
    start = torch.randn(len(mixing), _RANK, generator=draw, dtype=mixing.dtype).to(mixing)
    others = mixing.clone().fill_diagonal_(0)
    for _ in range(_REPEATED):
        left = torch.linalg.qr(others @ (others.T @ (others @ start))).Q
        right = left.T @ others
        others.diagonal().copy_((left * right.T).sum(1))
    own = mixing.diagonal() - others.diagonal()
    probe = torch.randn(len(mixing), 1, generator=draw, dtype=mixing.dtype).to(mixing)
    squared = torch.zeros(())
    for _ in range(8):  # power iterations towards the squared norm of what is left out
        missed = others @ probe - left @ (right @ probe)
        probe = others.T @ missed - right.T @ (left.T @ missed)
        squared = probe.norm()
        probe = probe / squared.clamp(min=torch.finfo(probe.dtype).tiny)
    negligible = _NEGLIGIBLE_IF_SKETCHED if of_sketches else _NEGLIGIBLE
    return Factored(own, left, right) if float(squared) <= negligible**2 else None


def squared_distances(tables: Tensor) -> Tensor:
    """‖Q_u − Q_v‖² for all pairs of clients, [c, c]."""
    inner = products(tables)
    norms = inner.diagonal()
    return (norms[:, None] + norms - 2 * inner).clamp_(min=0).fill_diagonal_(0)


def onto_simplex(points: Tensor) -> Tensor:
    """Project each row onto the simplex: the nearest point with non-negative entries that sum to one.

    The projection subtracts the same amount from all entries and cuts at zero. Sorting yields this amount
    directly (Held, Wolfe & Crowder 1974). Long rows take a few passes instead (Michelot 1986).
    """
    rows = points.reshape(-1, points.shape[-1])
    project = _by_passes if points.shape[-1] > LONG else _by_sorting
    return torch.cat([project(part) for part in torch.split(rows, _ROWS)]).view(points.shape)


def _by_passes(points: Tensor) -> Tensor:
    """Every pass leaves out the entries that would be negative, until no row has any."""
    count, total = points.new_full((len(points), 1), points.shape[-1]), points.sum(-1, keepdim=True)
    while True:
        amount = (total - 1) / count
        kept = points > amount
        left = kept.sum(-1, keepdim=True).to(count)
        if torch.equal(left, count):
            return (points - amount).clamp_(min=0)
        count, total = left, (points * kept).sum(-1, keepdim=True)


def _by_sorting(points: Tensor) -> Tensor:
    ordered = points.sort(-1, descending=True).values
    surplus = ordered.cumsum(-1) - 1
    count = torch.arange(1, points.shape[-1] + 1, device=points.device, dtype=points.dtype)
    last = (ordered * count > surplus).sum(-1, keepdim=True) - 1
    return (points - surplus.gather(-1, last) / (last + 1)).clamp_(min=0)


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
