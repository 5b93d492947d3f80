"""Robust combination of sums over groups of clients, so that no single group decides the result.

A server that sees only sums cannot judge single clients, but it can compare groups. For every number it takes
the mean over each group's clients, and then the median or a trimmed mean of these group means. One client, or
one node with all its clients, corrupts at most one group. As long as fewer than half of the groups are
corrupted, the median lies between values of honest groups (Yin et al., ICML 2018, with groups as workers).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch

from solera.core.order_statistics import Over, trimmed_totals
from solera.core.spec import Leaf
from solera.core.upload import Sums, Upload

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
