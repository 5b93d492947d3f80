"""Robust statistics of clients' changes: trimmed means, medians, and Krum's selection of clients."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from solera.core.spec import Leaf, Params
from solera.core.trust import owners
from solera.core.upload import Sums, Totals, Upload

_NUMBERS = 1 << 23  # numbers held in memory at once

Over = Literal["touching", "all"]


def trimmed_mean(values: Tensor, counts: Tensor, trim: float) -> Tensor:
    """Trimmed means [groups, d] of values [groups, width, d], using the first `counts` values of a group.

    Drops the ⌊trim · count⌋ smallest and as many of the largest values, but keeps at least one or two: a trim
    of 0.5 gives the median.
    """
    place = torch.arange(values.shape[1], device=values.device)[:, None]
    counts = counts.to(values.device)[:, None, None]
    padded = torch.where(place < counts, values, torch.inf)
    # Sorting is fastest along the last axis.
    ordered = padded.transpose(1, 2).contiguous().sort(2).values.transpose(1, 2)
    out = torch.minimum((trim * counts + 1e-9).long(), (counts - 1) // 2).clamp(min=0)
    kept = (place >= out) & (place < counts - out)
    return torch.where(kept, ordered, 0).sum(1) / (counts - 2 * out).squeeze(1).clamp(min=1)


def trimmed_totals(upload: Upload, leaves: tuple[Leaf, ...], n_items: int, trim: float, over: Over) -> Sums:
    """Sums whose means are the trimmed means of every number, over the clients that touch a row, or over all.

    Over all clients, those that did not touch a row count as zeros.
    """
    n, device = upload.n_clients, upload.rows.device
    everybody = torch.tensor([n], device=device)
    counts = torch.bincount(upload.rows, minlength=n_items)
    touched = counts.nonzero().squeeze(1)
    changes: Params = {}
    for leaf in leaves:
        values = upload.changes[leaf.sent_as].double()
        flat = values.flatten(1)
        if leaf.per_item:
            found = _by_row(upload, flat, counts, trim, over).index_select(0, touched)
        else:
            found = trimmed_mean(flat[None], everybody, trim).squeeze(0) * n
        changes[leaf.sent_as] = found.view(-1, *leaf.shape) if leaf.per_item else found.view(leaf.shape)
    return Sums(touched, counts.index_select(0, touched).double(), float(n), changes)


def _by_row(upload: Upload, values: Tensor, counts: Tensor, trim: float, over: Over) -> Tensor:
    """[n_items, d]: trimmed means times the number of clients they are taken over."""
    order = upload.rows.argsort(stable=True)
    rows, begin = upload.rows[order], counts.cumsum(0) - counts
    rank = torch.arange(len(rows), device=rows.device) - begin[rows]
    found = values.new_zeros(len(counts), values.shape[1])
    by_size = counts.argsort(descending=True)  # groups of similar size are processed together
    start = 0
    while start < len(counts) and int(counts[by_size[start]]):
        width = upload.n_clients if over == "all" else int(counts[by_size[start]])
        items = by_size[start : start + max(1, _NUMBERS // (width * values.shape[1]))]
        start += len(items)
        place = torch.full_like(counts, -1)
        place[items] = torch.arange(len(items), device=rows.device)
        mine = (place[rows] >= 0).nonzero().squeeze(1)
        table = values.new_zeros(len(items), width, values.shape[1])
        table[place[rows[mine]], rank[mine]] = values[order[mine]]
        of = torch.full_like(items, width) if over == "all" else counts[items]
        found[items] = trimmed_mean(table, of, trim) * of[:, None]
    return found


def krum(upload: Upload, totals: Totals, suspected: int, wanted: int) -> Tensor:
    """Indices of the `wanted` clients with the lowest Krum scores, ascending.

    The score of a client is the sum of its squared distances to the n − suspected − 2 nearest other clients.
    Rows that a client did not touch are zero.
    """
    n = upload.n_clients
    products = _products(upload, totals)
    squares = products.diagonal()
    distances = (squares[:, None] + squares - 2 * products).clamp(min=0).fill_diagonal_(torch.inf)
    near = min(max(n - suspected - 2, 1), n - 1)
    scores = distances.sort(1).values[:, :near].sum(1)
    return scores.argsort(stable=True)[:wanted].sort().values.cpu()


def _products(upload: Upload, totals: Totals) -> Tensor:
    """⟨Δ_u, Δ_v⟩ of all clients u and v, computed for blocks of items."""
    n, owner = upload.n_clients, owners(upload)
    found = torch.zeros(n, n, dtype=torch.float64, device=owner.device)
    for leaf in totals.leaves:
        values = upload.changes[leaf.sent_as].flatten(1)
        if not leaf.per_item:
            found += values @ values.T
            continue
        step = max(1, _NUMBERS // (n * values.shape[1]))
        for start in range(0, totals.n_items, step):
            mine = ((upload.rows >= start) & (upload.rows < start + step)).nonzero().squeeze(1)
            table = values.new_zeros(n, step, values.shape[1])
            table[owner[mine], upload.rows[mine] - start] = values[mine]
            flat = table.flatten(1)
            found += flat @ flat.T
    return found
