"""Clients' rows: read them at the start of a round, and build whole tables from them at its end."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from solera.core.choices import ViewSettles
from solera.core.spec import Home, Leaf, Params
from solera.engine.simulation import Task
from solera.engine.store import TouchedRows


def start(task: Task, group: TouchedRows) -> Params:
    """Parameters before training: the group's rows of per-item leaves, and one value per client of others."""
    state, index = task.state, torch.from_numpy(group.clients).to(task.state.device)
    n = len(group.clients)

    def value(leaf: Leaf) -> Tensor:
        if leaf.home is Home.PERSONAL:
            if leaf.fresh:
                return state.personal.initial[leaf.name].expand(n, *leaf.shape)
            if leaf.per_item:
                return state.personal.get(leaf.name, group, task.table_rows)
            return state.personal.whole[leaf.name].index_select(0, index)
        shared = state.shared[leaf.name]
        if leaf.name in task.method.tailored:
            if not leaf.per_item:
                return shared.index_select(0, index)
            places = index.repeat_interleave(group.counts) * shared.shape[1] + group.items
            return shared.view(-1, *leaf.shape).index_select(0, places)
        return task.table_rows(leaf.name, group.items) if leaf.per_item else shared.expand(n, *leaf.shape)

    return {leaf.name: value(leaf) for leaf in task.method.leaves}


class Trained(NamedTuple):
    """A group's parameters before and after training."""

    group: TouchedRows
    before: Params
    after: Params


def settled(task: Task, trained: Trained, whole: Params) -> Trained:
    """Extend the result to all items: untouched rows are computed by the view's `settle`.

    `whole` are the leaves that are not per item, with their values at that time.
    """
    view, n_items, clients = task.method.view, task.data.n_items, trained.group.clients
    assert isinstance(view, ViewSettles)
    device = task.state.device
    items = torch.arange(n_items, device=device).repeat(len(clients))
    group = TouchedRows(clients, items, torch.full((len(clients),), n_items))
    before = start(task, group)
    tables = {leaf.name for leaf in task.method.select(per_item=True)}
    shape = len(clients), n_items
    seen = whole | {name: before[name].view(*shape, *before[name].shape[1:]) for name in tables}
    after = dict(trained.after)
    owner = torch.arange(len(clients), device=device).repeat_interleave(trained.group.counts)
    touched = owner * n_items + trained.group.items
    for name in tables:
        base = view.settle(seen).flatten(0, 1) if name == view.settles else before[name].clone()
        after[name] = base.index_copy_(0, touched, trained.after[name])
    return Trained(group, before, after)
