"""Local training as engines implement it: the task of a round, clients' rows before it, and the result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from solera.core.context import RoundContext
from solera.core.leaf import Home, Leaf, Params
from solera.core.method import Method
from solera.core.parts import Scorer, Stage, View
from solera.core.types import Ints
from solera.core.upload import Sums, Upload
from solera.data.sampling import ClientData
from solera.engine.store import State, TouchedRows

_SETTLED = 4_194_304  # numbers of whole tables that a view settles at once: more do not fit in a cache


@dataclass(frozen=True)
class ClientResult:
    """The result of local training for a group of clients. Only `upload` goes to the server.

    `claims` are the numbers of training items that dishonest clients report.
    """

    clients: Ints
    upload: Upload
    params: Params  # after training; per-item leaves have the same rows as `upload`
    loss: Tensor  # [n_clients], mean over the samples of the last epoch
    claims: Ints | None = None


@dataclass(frozen=True)
class Task:
    """The input of local training. With `news=False`, for clients whose table is not new."""

    method: Method
    data: ClientData
    state: State
    context: RoundContext
    seed: int
    news: bool = True

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """The stages of the method's update."""
        update = self.method.update
        return update.stages(self.context) if self.news else update.stages_without_news(self.context)

    def by_news(self, clients: Ints) -> list[tuple[Task, Ints]]:
        """The clients with a new table and those without, if they train differently."""
        update = self.method.update
        if not update.told:
            return [(self, clients)]
        new = self.state.shared[update.told].squeeze(-1).cpu().numpy()[clients] != 0
        groups = (self, clients[new]), (replace(self, news=False), clients[~new])
        return [group for group in groups if len(group[1])]


class SummedResult(NamedTuple):
    """What a group of clients sends, added up, with the clients' weights.

    `rows` are the items whose rows they send, `row_counts[c]` of them for client c, and `loss` their losses.
    """

    sums: Sums
    rows: Tensor
    row_counts: Tensor
    loss: Tensor


class LocalTraining:
    """An engine: trains clients from a state, without changing it."""

    def __call__(self, task: Task, clients: Ints) -> Iterator[ClientResult]:
        """Train clients and yield the results of groups of clients, in any order."""
        raise NotImplementedError

    def sums(self, task: Task, clients: Ints) -> Iterator[SummedResult]:
        """The sums of groups of clients, in any order, where nobody needs what a single client sends.

        Nothing if the engine has to train single clients.
        """
        return iter(())


def start(task: Task, group: TouchedRows) -> Params:
    """Parameters before training: the group's rows of per-item leaves, and one value per client of others.

    Includes what view and scorer prepare from other rows for this round.
    """
    params, view, scorer = _held(task, group), task.method.view, task.method.scorer
    if scorer.gathers:
        params[scorer.gathers] = _gathered(task, scorer, group)
    if view.does("prepare"):
        tables = {leaf.name: _tables(task, leaf, group) for leaf in task.method.select(per_item=True)}
        params |= view.prepare(tables, task.context)
    return params


def _tables(task: Task, leaf: Leaf, group: TouchedRows) -> Tensor:
    """Personal tables [clients, n_items, *shape] of the group, or the shared table."""
    if leaf.home is Home.SHARED:
        return task.state.shared[leaf.name]
    return task.state.personal.table(leaf.name, group.clients)


def _gathered(task: Task, scorer: Scorer, group: TouchedRows) -> Tensor:
    own, device = task.data.train.take(group.clients), task.state.device
    counts = torch.from_numpy(own.lengths)
    mine = TouchedRows(group.clients, torch.from_numpy(own.values).long().to(device), counts)
    (items,) = (leaf for leaf in task.method.leaves if leaf.name == "items")
    return scorer.gather(_value(task, items, mine), counts.to(device))


def _held(task: Task, group: TouchedRows) -> Params:
    """The leaves of a group of clients before training."""
    return {leaf.name: _value(task, leaf, group) for leaf in task.method.leaves}


def _value(task: Task, leaf: Leaf, group: TouchedRows) -> Tensor:
    """The group's rows of a per-item leaf, or one value per client of another one."""
    index = torch.from_numpy(group.clients).to(task.state.device)
    if leaf.home is Home.PERSONAL:
        personal = task.state.personal
        if leaf.fresh:
            return personal.initial[leaf.name].expand(len(index), *leaf.shape)
        if leaf.per_item:
            return personal.get(leaf.name, group)
        return personal.whole[leaf.name].index_select(0, index)
    shared = task.state.shared[leaf.name]
    tailored = leaf.name in task.method.tailored
    if not leaf.per_item:
        return shared.index_select(0, index) if tailored else shared.expand(len(index), *leaf.shape)
    if tailored:
        return group.of(shared)
    return shared.index_select(0, group.items)


class Trained(NamedTuple):
    """A group's parameters before and after training."""

    group: TouchedRows
    before: Params
    after: Params


def _settle(view: View, seen: Params) -> Tensor:
    """What becomes of whole tables [clients, n_items, *shape], a few clients' at a time."""
    found = torch.empty_like(seen[view.settles])
    size = max(1, _SETTLED // found[0].numel())
    for begin in range(0, len(found), size):
        some = slice(begin, begin + size)
        found[some] = view.settle({name: values[some] for name, values in seen.items()})
    return found


def settled(task: Task, trained: Trained, whole: Params) -> Trained:
    """Extend the result to all items: untouched rows are computed by the view's `settle`.

    `whole` are the parameters that are not per item, with their values at that time. Leaves that the view
    reports are sent as they are, as a change from zero.
    """
    view, n_items, clients = task.method.view, task.data.n_items, trained.group.clients
    device = task.state.device
    items = torch.arange(n_items, device=device).repeat(len(clients))
    group = TouchedRows(clients, items, torch.full((len(clients),), n_items))
    before = _held(task, group)
    tables = {leaf.name for leaf in task.method.select(per_item=True)}
    shape = len(clients), n_items
    seen = whole | {name: before[name].view(*shape, *before[name].shape[1:]) for name in tables}
    after = {name: trained.after[name] for name in before}  # without what the view prepared
    owner = torch.arange(len(clients), device=device).repeat_interleave(trained.group.counts)
    touched = owner * n_items + trained.group.items
    for name in tables:
        base = _settle(view, seen).flatten(0, 1) if name == view.settles else before[name].clone()
        after[name] = base.index_copy_(0, touched, trained.after[name])
    if view.reports:
        personal = {leaf.name for leaf in task.method.select(home=Home.PERSONAL, per_item=True)}
        sent = view.report({name: after[name].view(*shape, *after[name].shape[1:]) for name in personal})
        after |= {name: values.flatten(0, 1) for name, values in sent.items()}
        before |= {name: torch.zeros_like(after[name]) for name in sent}
    return Trained(group, before, after)
