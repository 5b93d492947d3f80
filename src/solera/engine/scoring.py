"""Scores of all items for many clients, without a table of all items for each of them.

A client that keeps rows differs from the shared table in these rows alone. So everybody is scored with the
shared table, and the scores of a client's own rows are computed again.
"""

from __future__ import annotations

import torch
from torch import Tensor

from solera.core.arrays import Ints
from solera.core.method import Method
from solera.core.spec import Params
from solera.engine.store import PersonalStore


def all_scores(
    method: Method, shared: Params, personal: PersonalStore, clients: Ints, more: Params
) -> Tensor:
    """Scores [len(clients), n_items]. `more` are parameters that are neither shared nor personal."""
    index = torch.from_numpy(clients).long().to(personal.device)
    params = {name: values[index] if name in method.tailored else values for name, values in shared.items()}
    params |= {name: values[index] for name, values in (personal.whole | personal.tables).items()} | more
    params |= {name: personal.initial[name] for name in personal.rows if name in personal.initial}
    scores = method.score(params)
    if scores.dim() == 1:
        scores = scores.expand(len(clients), -1)
    return _corrected(method, scores, personal, index, params) if personal.rows else scores


def _corrected(
    method: Method, scores: Tensor, personal: PersonalStore, clients: Tensor, params: Params
) -> Tensor:
    """The scores, with those of the rows that clients hold computed from these rows."""
    n_items = scores.shape[1]
    own = torch.unique(torch.cat([_places(personal, name, clients, n_items) for name in personal.rows]))
    if not len(own):
        return scores
    owner, item = torch.div(own, n_items, rounding_mode="floor"), own % n_items
    counts = torch.bincount(owner, minlength=len(clients))
    width = int(counts.max())
    # Rows of all clients in a table [clients, width], padded with item 0.
    place = owner * width + torch.arange(len(own), device=own.device) - (counts.cumsum(0) - counts)[owner]
    items = own.new_zeros(len(clients) * width).index_copy_(0, place, item).view(len(clients), width)
    at = dict(params)
    for leaf in (leaf for leaf in method.select(per_item=True) if leaf.name in params):
        table = params[leaf.name]
        if table.dim() > len(leaf.shape) + 1:  # a table for each client
            rows = table[torch.arange(len(clients), device=own.device)[:, None], items]
        else:
            rows = table[items]
        if leaf.name in personal.rows:
            held = rows.flatten(0, 1)[place]
            held = personal.rows[leaf.name].overlay(clients.cpu(), item, counts.cpu(), held, n_items)
            rows = rows.flatten(0, 1).index_copy(0, place, held).view(rows.shape)
        at[leaf.name] = rows
    return scores.index_put((owner, item), method.score(at).flatten()[place])


def _places(personal: PersonalStore, name: str, clients: Tensor, n_items: int) -> Tensor:
    """One number for each (client, item) that is held."""
    held = personal.rows[name].take(clients.cpu())
    owner = torch.arange(len(clients)).repeat_interleave(held.counts).to(personal.device)
    return owner * n_items + held.items
