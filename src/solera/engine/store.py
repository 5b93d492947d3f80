"""Personal state of simulated clients.

A personal table is stored in full if the tables of all clients fit into `TABLE_BYTES`. Otherwise, and for
shared rows that clients keep, each client stores the rows it touched, and nothing has size clients × items.
"""

from __future__ import annotations

from copy import copy
from typing import NamedTuple

import torch
from torch import Tensor

from solera.core.arrays import Ints
from solera.core.method import Method
from solera.core.spec import Home, Params

TABLE_BYTES = 4 << 30  # per leaf; MovieLens-1M with 32 dimensions needs 2.9 GB


class ClientRows(NamedTuple):
    """Rows of a per-item leaf that one client holds: ascending item numbers and their values."""

    items: Tensor
    values: Tensor


class TouchedRows(NamedTuple):
    """Some clients and the rows they touch: item numbers, client after client, `counts[c]` of client c."""

    clients: Ints
    items: Tensor
    counts: Tensor


class PersonalStore:
    """The personal leaves of all clients, and the shared rows they keep after fine-tuning.

    `whole` are the leaves that are not per item, [n_clients, *shape]; `tables` the per-item leaves stored in
    full, [n_clients, n_items, *shape]; `rows` those stored row by row. Rows passed in are never changed in
    place.
    """

    def __init__(
        self, method: Method, initial: Params, n_clients: int, table_bytes: int = TABLE_BYTES
    ) -> None:
        self.device = next(iter(initial.values())).device
        self.initial = {leaf.name: initial[leaf.name] for leaf in method.select(home=Home.PERSONAL)}
        self.whole: Params = {}
        self.tables: Params = {}
        self.rows: dict[str, dict[int, ClientRows]] = {name: {} for name in method.view.keeps}
        for leaf in method.select(home=Home.PERSONAL):
            start = self.initial[leaf.name]
            if leaf.per_item and n_clients * start.nbytes > table_bytes:
                self.rows[leaf.name] = {}
                continue
            place = self.tables if leaf.per_item else self.whole
            place[leaf.name] = start.expand(n_clients, *start.shape).clone()

    def get(self, name: str, group: TouchedRows) -> Tensor:
        """The group's rows of a personal per-item leaf. Untouched rows have their initial values."""
        if name in self.tables:
            return _flat(self.tables[name]).index_select(0, self._places(name, group))
        items = torch.split(group.items, group.counts.tolist())
        each = zip(group.clients.tolist(), items, strict=True)
        return torch.cat([self._get_rows(name, client, mine) for client, mine in each])

    def put(self, name: str, group: TouchedRows, values: Tensor) -> None:
        """Store the group's rows. Rows of a shared leaf replace all earlier ones; a personal leaf grows."""
        if name in self.tables:
            _flat(self.tables[name]).index_copy_(0, self._places(name, group), values)
            return
        counts = group.counts.tolist()
        each = zip(
            group.clients.tolist(), torch.split(group.items, counts), torch.split(values, counts), strict=True
        )
        for client, items, mine in each:
            self._put_rows(name, client, items, mine)

    def table(self, name: str, clients: Ints, base: Tensor | None = None) -> Tensor:
        """The clients' tables [len(clients), n_items, *shape].

        Kept rows of a shared leaf override `base`, which is that leaf's table or one table per client.
        """
        if name in self.tables:
            return self.tables[name].index_select(0, torch.from_numpy(clients).to(self.device))
        under = self.initial[name] if base is None else base
        table = under.expand(len(clients), *under.shape[-2:]).clone()
        for place, client in enumerate(clients.tolist()):
            held = self.rows[name].get(client)
            if held is not None:
                table[place, held.items] = held.values
        return table

    def _places(self, name: str, group: TouchedRows) -> Tensor:
        clients = torch.from_numpy(group.clients).to(self.device)
        return clients.repeat_interleave(group.counts) * self.tables[name].shape[1] + group.items

    def _get_rows(self, name: str, client: int, items: Tensor) -> Tensor:
        values = self.initial[name].index_select(0, items)
        held = self.rows[name].get(client)
        if held is not None:
            position, known = _find(held.items, items)
            values[known] = held.values.index_select(0, position[known])
        return values

    def _put_rows(self, name: str, client: int, items: Tensor, values: Tensor) -> None:
        held = self.rows[name].get(client)
        if held is None or name not in self.initial:
            self.rows[name][client] = ClientRows(items, values)
            return
        position, known = _find(held.items, items)
        union = torch.cat([held.items, items[~known]]).sort().values
        merged = values.new_empty((len(union), *values.shape[1:]))
        if len(union) == len(held.items):
            merged.copy_(held.values)
        else:
            merged.index_copy_(0, torch.searchsorted(union, held.items), held.values)
            position = torch.searchsorted(union, items)
        self.rows[name][client] = ClientRows(union, merged.index_copy_(0, position, values))

    def of_client(self, client: int) -> Params:
        """All that one client holds, as `take_client` expects it: rows as (items, values)."""
        tensors = {name: values[client] for name, values in (self.whole | self.tables).items()}
        for name, rows in self.rows.items():
            if client in rows:
                tensors[f"{name}/items"], tensors[f"{name}/values"] = rows[client]
        return tensors

    def take_client(self, client: int, tensors: Params) -> None:
        """Restore what a client held. New rows of a table that has grown since keep their initial values."""
        for name, values in (self.whole | self.tables).items():
            if name in tensors:
                held = tensors[name]
                values[client, : len(held)] = held.to(values)
        for name in self.rows:
            if f"{name}/items" in tensors:
                parts = (tensors[f"{name}/{part}"].to(self.device) for part in ClientRows._fields)
                self.rows[name][client] = ClientRows(*parts)

    def copy(self) -> PersonalStore:
        """A copy that is unaffected by later changes of this one. Held rows are not copied."""
        twin = copy(self)
        twin.whole = {name: values.clone() for name, values in self.whole.items()}
        twin.tables = {name: values.clone() for name, values in self.tables.items()}
        twin.rows = {name: dict(rows) for name, rows in self.rows.items()}
        return twin

    def tensors(self) -> Params:
        """Everything as named tensors, ready to be saved: rows as (clients, counts, items, values)."""
        tensors = self.whole | self.tables
        for name, rows in self.rows.items():
            clients = sorted(rows)
            held = [rows[client] for client in clients]
            tensors[f"{name}/clients"] = torch.tensor(clients, dtype=torch.int64)
            tensors[f"{name}/counts"] = torch.tensor([len(h.items) for h in held], dtype=torch.int64)
            if held:
                tensors[f"{name}/items"] = torch.cat([h.items for h in held])
                tensors[f"{name}/values"] = torch.cat([h.values for h in held])
        return tensors

    def restore(self, tensors: Params) -> None:
        """Restore the output of `tensors`."""
        moved = {name: value.to(self.device) for name, value in tensors.items()}
        self.whole = {name: moved[name].clone() for name in self.whole}
        self.tables = {name: moved[name].clone() for name in self.tables}
        for name in self.rows:
            clients = moved[f"{name}/clients"].tolist()
            counts = moved[f"{name}/counts"].tolist()
            self.rows[name] = {}
            if clients:
                items = torch.split(moved[f"{name}/items"], counts)
                held = map(ClientRows, items, torch.split(moved[f"{name}/values"], counts))
                self.rows[name] = dict(zip(clients, held, strict=True))


def _flat(tables: Tensor) -> Tensor:
    return tables.view(-1, *tables.shape[2:])


def _find(held: Tensor, items: Tensor) -> tuple[Tensor, Tensor]:
    """Positions of `items` in the ascending `held`, and a mask of those that are found."""
    position = torch.searchsorted(held, items).clamp_(max=len(held) - 1)
    return position, held.index_select(0, position) == items
