"""Robust statistics of clients' changes: bounds on uploads, trimmed means, medians, and Krum's selection.

A server that sees only sums cannot judge single clients, but it can compare groups (`combine`). For every
number it takes the mean over each group's clients, and then the median or a trimmed mean of these group
means. One client, or one node with all its clients, corrupts at most one group. As long as fewer than half of
the groups are corrupted, the median lies between values of honest groups (Yin et al., ICML 2018, with groups
as workers)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from solera.core.leaf import Leaf, Params
from solera.core.upload import Sums, Totals, Upload


def bound_norms(upload: Upload, leaves: tuple[Leaf, ...], bound: float) -> Upload:
    """Limit every client's change to `bound` times the norm of the median client's."""
    owner = owners(upload)
    squares = _squares(upload, leaves, per_item=False)
    squares = squares.index_add(0, owner, _squares(upload, leaves, per_item=True))
    scale = _scale(squares.sqrt(), bound)
    return _scaled(upload, leaves, scale[owner], scale)


def cap_rows(upload: Upload, leaves: tuple[Leaf, ...], bound: float) -> Upload:
    """Limit every client's change of a row to `bound` times the typical size.

    The typical size is the median over clients of the root mean square over a client's rows. (The median row
    would be close to zero once most rows hardly change.) Leaves that are not per item count as one more row,
    with a median of their own.
    """
    squares = _squares(upload, leaves, per_item=True)
    counts = upload.row_counts.to(squares.device)
    means = squares.new_zeros(upload.n_clients).index_add(0, owners(upload), squares) / counts
    usual = means[counts > 0].median().sqrt() if len(squares) else squares.new_zeros(())
    fixed = _squares(upload, leaves, per_item=False).sqrt()
    return _scaled(upload, leaves, _scale(squares.sqrt(), bound, usual), _scale(fixed, bound))


def cut_peaks(upload: Upload, leaves: tuple[Leaf, ...], bound: float) -> Upload:
    """Limit every number of a client to `bound` times the median client's largest."""
    return upload.clipped(bound * float(upload.peaks(leaves).median()))


def owners(upload: Upload) -> Tensor:
    """The index of the client that sent each row."""
    places = torch.arange(upload.n_clients).repeat_interleave(upload.row_counts)
    return places.to(upload.rows.device)


def _squares(upload: Upload, leaves: tuple[Leaf, ...], *, per_item: bool) -> Tensor:
    """Squared norms of all rows, or of each client's leaves that are not per item, in double precision."""
    count = len(upload.rows) if per_item else upload.n_clients
    found = torch.zeros(count, dtype=torch.float64, device=upload.rows.device)
    for leaf in leaves:
        if leaf.per_item == per_item:
            found += upload.changes[leaf.sent_as].double().square().flatten(1).sum(1)
    return found


def _scale(norms: Tensor, bound: float, usual: Tensor | None = None) -> Tensor:
    limit = bound * (norms.median() if usual is None else usual)
    return torch.where(norms > limit, limit / norms, 1.0)


def _scaled(upload: Upload, leaves: tuple[Leaf, ...], rows: Tensor, clients: Tensor) -> Upload:
    changes: Params = {}
    for leaf in leaves:
        values = upload.changes[leaf.sent_as]
        factor = (rows if leaf.per_item else clients).to(values.dtype)
        changes[leaf.sent_as] = values * factor.view(-1, *[1] * len(leaf.shape))
    return Upload(upload.rows, upload.row_counts, changes)


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


Combination = Literal["mean", "median", "trimmed-mean"]
COMBINATIONS: tuple[Combination, ...] = get_args(Combination)


def combine(
    groups: Sequence[Sums],
    leaves: tuple[Leaf, ...],
    n_items: int,
    how: Combination,
    *,
    trim: float = 0.2,
    over: Over = "touching",
) -> Sums:
    """Combine group sums into one sum, as if every client had sent the robust mean of the groups.

    A row is judged by the groups that touched it, or by all groups, with zeros for those that did not.
    """
    sent = tuple(leaf for leaf in leaves if leaf.sent_as)
    trim = {"mean": 0.0, "median": 0.5, "trimmed-mean": trim}[how]
    found = trimmed_totals(_means(groups, sent, over), sent, n_items, trim, over)
    weight = sum(group.weight for group in groups)
    row_weights = torch.zeros(n_items, dtype=torch.float64)
    for group in groups:
        row_weights.index_add_(0, group.rows, group.row_weights.double())
    row_weights = row_weights[found.rows]
    # `found` holds the mean times the number of groups; a sum is the mean times the total weight.
    per_row = row_weights / found.row_weights if over == "touching" else torch.full_like(row_weights, weight)
    if over == "all":
        per_row /= len(groups)
    changes = {
        leaf.sent_as: found.changes[leaf.sent_as]
        * (per_row.view(-1, *[1] * len(leaf.shape)) if leaf.per_item else weight / len(groups))
        for leaf in sent
    }
    return Sums(found.rows, row_weights, weight, changes)


def _means(groups: Sequence[Sums], leaves: tuple[Leaf, ...], over: Over) -> Upload:
    """Represent every group as one client that sends the group's mean."""
    changes = {}
    for leaf in leaves:
        parts = []
        for group in groups:
            change = group.changes[leaf.sent_as].double()
            if leaf.per_item:
                by = group.row_weights.double() if over == "touching" else torch.tensor(group.weight)
                parts.append(change / by.view(-1, *[1] * len(leaf.shape)))
            else:
                parts.append(change[None] / group.weight)
        changes[leaf.sent_as] = torch.cat(parts)
    return Upload(
        torch.cat([group.rows for group in groups]),
        torch.tensor([len(group.rows) for group in groups]),
        changes,
    )
