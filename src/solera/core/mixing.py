"""Tables of every client's own, mixed of all clients' tables: distances, projections, and what is common."""

from __future__ import annotations

import torch
from torch import Tensor

_COLUMNS = 4_096  # of the clients' tables that are compared at once
_ROWS = 512  # that are projected at once


def products(tables: Tensor) -> Tensor:
    """The inner products [c, c] of clients' tables [c, n, d], each less the mean table."""
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
    """The nearest points with non-negative entries that sum to one, row by row.

    The projection takes the same amount off all entries and cuts at zero; sorted, the amount is found at once
    (Held, Wolfe & Crowder 1974).
    """
    rows = points.reshape(-1, points.shape[-1])
    return torch.cat([_onto_simplex(part) for part in torch.split(rows, _ROWS)]).view(points.shape)


def _onto_simplex(points: Tensor) -> Tensor:
    ordered = points.sort(-1, descending=True).values
    surplus = ordered.cumsum(-1) - 1
    count = torch.arange(1, points.shape[-1] + 1, device=points.device, dtype=points.dtype)
    last = (ordered * count > surplus).sum(-1, keepdim=True) - 1
    return (points - surplus.gather(-1, last) / (last + 1)).clamp_(min=0)
