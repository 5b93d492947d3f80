"""Personal state of simulated clients: what each of them holds, and nothing of order clients × items.

Values handed in are never changed in place, so a snapshot is a shallow copy.
"""

from __future__ import annotations

from copy import copy
from typing import NamedTuple

import torch
from torch import Tensor

from solera.core.method import Method
from solera.core.spec import Home, Params
from solera.data.ragged import Ints


class ClientRows(NamedTuple):
    """Rows of a per-item leaf that one client holds: item numbers in ascending order, and their values."""

    items: Tensor
    values: Tensor


class PersonalStore:
    """The personal leaves of all clients, and the shared rows they keep after fine-tuning."""

    def __init__(self, method: Method, initial: Params, n_clients: int) -> None:
        self.device = next(iter(initial.values())).device
        self._initial = {
            leaf.name: initial[leaf.name] for leaf in method.select(home=Home.PERSONAL, per_item=True)
        }
        self.whole: Params = {
            leaf.name: initial[leaf.name].expand(n_clients, *leaf.shape).clone()
            for leaf in method.select(home=Home.PERSONAL, per_item=False)
        }
        self.rows: dict[str, dict[int, ClientRows]] = {
            name: {} for name in (*self._initial, *method.view.keeps)
        }

    def get_rows(self, name: str, client: int, items: Tensor) -> Tensor:
        """A client's rows of a personal per-item leaf; those it never touched are as they started."""
        values = self._initial[name].index_select(0, items)
        held = self.rows[name].get(client)
        if held is not None:
            position, known = _find(held.items, items)
            values[known] = held.values.index_select(0, position[known])
        return values

    def put_rows(self, name: str, client: int, items: Tensor, values: Tensor) -> None:
        """Store rows (ascending items). A kept leaf is replaced whole, a personal one grows."""
        held = self.rows[name].get(client)
        if held is None or name not in self._initial:
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

    def put_whole(self, name: str, clients: Tensor, values: Tensor) -> None:
        """Store the clients' values of a personal leaf that is not per item."""
        self.whole[name][clients] = values

    def tables(self, name: str, clients: Ints, base: Tensor | None) -> Tensor:
        """The clients' whole tables [len(clients), n_items, *shape]: their own rows over `base`.

        `base` is the shared table for a kept leaf; a personal leaf stands over its initial values.
        """
        under = self._initial[name] if base is None else base
        tables = under.expand(len(clients), *under.shape).clone()
        for place, client in enumerate(clients.tolist()):
            held = self.rows[name].get(client)
            if held is not None:
                tables[place, held.items] = held.values
        return tables

    def copy(self) -> PersonalStore:
        """The same state, unaffected by what happens to this one from now on. Rows are not copied."""
        twin = copy(self)
        twin.whole = {name: values.clone() for name, values in self.whole.items()}
        twin.rows = {name: dict(rows) for name, rows in self.rows.items()}
        return twin

    def tensors(self) -> Params:
        """Everything as named tensors, ready to be saved: rows as (clients, counts, items, values)."""
        tensors = dict(self.whole)
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
        """Take over what `tensors` gave."""
        moved = {name: value.to(self.device) for name, value in tensors.items()}
        self.whole = {name: moved[name].clone() for name in self.whole}
        for name in self.rows:
            clients = moved[f"{name}/clients"].tolist()
            counts = moved[f"{name}/counts"].tolist()
            self.rows[name] = {}
            if clients:
                items = torch.split(moved[f"{name}/items"], counts)
                held = map(ClientRows, items, torch.split(moved[f"{name}/values"], counts))
                self.rows[name] = dict(zip(clients, held, strict=True))


def _find(held: Tensor, items: Tensor) -> tuple[Tensor, Tensor]:
    """Where `items` stand among the ascending `held`, and which of them do."""
    position = torch.searchsorted(held, items).clamp_(max=len(held) - 1)
    return position, held.index_select(0, position) == items
