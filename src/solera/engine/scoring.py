"""Scores of all items for many clients, without a table of all items for each of them.

A client that keeps rows differs from the shared table in these rows alone. So everybody is scored with the
shared table, and the scores of a client's own rows are computed again.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from solera.core.leaf import Params
from solera.core.method import Method
from solera.core.types import Ints
from solera.engine.row_store import Padding, row_keys
from solera.engine.store import PersonalStore


def all_scores(
    method: Method,
    shared: Params,
    personal: PersonalStore,
    clients: Ints,
    more: Params,
) -> Tensor:
    """Scores [len(clients), n_items]. `more` are parameters that are neither shared nor personal."""
    index = torch.from_numpy(clients).long().to(personal.device)
    some = _without_copy(clients, index)
    params = {name: values[some] if name in method.tailored else values for name, values in shared.items()}
    params |= {name: values[some] for name, values in personal.whole.items()}
    params |= {name: values[some] for name, values in personal.tables.items()}
    params |= {name: personal.initial[name] for name in personal.rows if name in personal.initial}
    params |= more
    scores = method.score(params)
    if scores.dim() == 1:
        scores = scores.expand(len(clients), -1).clone()
    if personal.rows:
        _correct(method, scores, personal, index, params)
    return scores


def _without_copy(clients: Ints, index: Tensor) -> Tensor | slice:
    """Clients that follow each other as a slice, which makes no copy of their tables."""
    if len(clients) and (np.diff(clients) == 1).all():
        return slice(int(clients[0]), int(clients[-1]) + 1)
    return index


def _correct(
    method: Method,
    scores: Tensor,
    personal: PersonalStore,
    clients: Tensor,
    params: Params,
) -> None:
    """Compute the scores of rows that clients hold from these rows."""
    n_items = scores.shape[1]
    held = {name: rows.take(clients.cpu()) for name, rows in personal.rows.items()}
    keys = {name: row_keys(rows.items, rows.counts, n_items) for name, rows in held.items()}
    one, *others = keys.values()
    own = torch.unique(torch.cat([one, *others])) if others else one
    if not len(own):
        return
    owner, item = torch.div(own, n_items, rounding_mode="floor"), own % n_items
    rows: Params = {}
    of_client: dict[str, bool] = {}
    leaves = {leaf.name: leaf for leaf in method.leaves}
    for name, value in params.items():
        leaf = leaves.get(name)
        per_item = leaf is not None and leaf.per_item
        of_client[name] = leaf is None or value.dim() > len(leaf.shape) + per_item  # not the same for all
        if name in held and not others:
            rows[name] = held[name].values
        elif per_item:
            rows[name] = value[owner, item] if of_client[name] else value[item]
            if name in held:
                rows[name][torch.searchsorted(own, keys[name])] = held[name].values
    apart = {name: value for name, value in params.items() if name not in rows}
    scores[owner, item] = _scores_of_rows(method, rows, apart, of_client, owner)


def _scores_of_rows(
    method: Method, rows: Params, apart: Params, of_client: dict[str, bool], owner: Tensor
) -> Tensor:
    """Scores of single rows. `apart` are parameters that are not per item."""
    each = [name for name in apart if of_client[name]]
    clients = max((len(apart[name]) for name in each), default=int(owner.max()) + 1)
    counts = torch.bincount(owner, minlength=clients).cpu()
    of_row = sum(values[0].numel() for values in rows.values())
    of_each = sum(apart[name][0].numel() for name in each)
    # Clients have different numbers of rows. Either every row gets its client's parameters, or all clients
    # are padded to the same number of rows, whichever is smaller.
    if len(owner) * (of_row + of_each) <= clients * int(counts.max()) * of_row:
        own = {name: apart[name][owner] if of_client[name] else apart[name] for name in apart}
        return method.score(own | {name: values.unsqueeze(1) for name, values in rows.items()})[:, 0]
    padding = Padding(counts, owner.device)
    padded = {name: padding.pad(values) for name, values in rows.items()}
    return padding.unpad(method.score(apart | padded))
