"""Personalized tables, mixed from all clients' tables: distances and projections."""

from __future__ import annotations

import torch
from torch import Tensor

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


def squared_distances(tables: Tensor) -> Tensor:
    """‖Q_u − Q_v‖² for all pairs of clients, [c, c]."""
    inner = products(tables)
    norms = inner.diagonal()
    return (norms[:, None] + norms - 2 * inner).clamp_(min=0).fill_diagonal_(0)


def onto_simplex(points: Tensor) -> Tensor:
    """Project each row onto the simplex: the nearest point with non-negative entries that sum to one.

    The projection subtracts the same amount from all entries and cuts at zero. Sorting yields this amount
    directly (Held, Wolfe & Crowder 1974).
    """
    rows = points.reshape(-1, points.shape[-1])
    return torch.cat([_onto_simplex(part) for part in torch.split(rows, _ROWS)]).view(points.shape)


def _onto_simplex(points: Tensor) -> Tensor:
    ordered = points.sort(-1, descending=True).values
    surplus = ordered.cumsum(-1) - 1
    count = torch.arange(1, points.shape[-1] + 1, device=points.device, dtype=points.dtype)
    last = (ordered * count > surplus).sum(-1, keepdim=True) - 1
    return (points - surplus.gather(-1, last) / (last + 1)).clamp_(min=0)
