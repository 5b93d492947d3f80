"""The state of a simulated federation, and how the personal part of many clients is stored.

A personal table is stored in full if the tables of all clients fit into `TABLE_BYTES`. Otherwise, and for
shared rows that clients keep, each client stores the rows it touched, and nothing has size clients × items.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from solera.core.errors import ConfigError
from solera.core.leaf import Home, Leaf, Params
from solera.core.method import Method
from solera.core.tensor_files import Writable
from solera.core.types import Ints
from solera.core.upload import Upload
from solera.engine.row_store import IN_MEMORY, ClientRows, RowStore, row_keys

T = TypeVar("T")
_RESIDUAL = "residual/"
_ROWS = 1 << 31  # above every item number, for keys of (client, row)
TABLE_BYTES = 4 << 30  # per leaf; MovieLens-1M with 32 dimensions needs 2.9 GB


class TouchedRows(NamedTuple):
    """Some clients and the rows they touch: item numbers, client after client, `counts[c]` of client c."""

    clients: Ints
    items: Tensor
    counts: Tensor

    def of(self, tables: Tensor) -> Tensor:
        """These rows of tables [n_clients, n_items, *shape], as a copy."""
        if self._all_of(tables):
            return tables.index_select(0, self._who(tables)).flatten(0, 1)
        return tables.flatten(0, 1).index_select(0, self._places(tables))

    def put(self, tables: Tensor, values: Tensor) -> None:
        """Set these rows of tables [n_clients, n_items, *shape]."""
        if self._all_of(tables):
            tables.index_copy_(0, self._who(tables), values.view(-1, *tables.shape[1:]))
        else:
            tables.view(-1, *tables.shape[2:]).index_copy_(0, self._places(tables), values)

    def _all_of(self, tables: Tensor) -> bool:
        """Whether the clients touch all rows: whole tables are copied much faster than single rows."""
        return len(self.items) == len(self.clients) * tables.shape[1]

    def _who(self, tables: Tensor) -> Tensor:
        return torch.from_numpy(self.clients).to(tables.device)

    def _places(self, tables: Tensor) -> Tensor:
        return self._who(tables).repeat_interleave(self.counts) * tables.shape[1] + self.items


class PersonalStore:
    """The personal leaves of all clients, and the shared rows they keep after fine-tuning.

    `whole` are the leaves that are not per item, [n_clients, *shape]; `tables` the per-item leaves stored in
    full, [n_clients, n_items, *shape]; `rows` those stored row by row. Rows passed in are never changed in
    place.
    """

    def __init__(
        self,
        method: Method,
        initial: Params,
        n_clients: int,
        n_items: int,
        *,
        by_rows: Collection[str],
        rows_in_memory: int = IN_MEMORY,
    ) -> None:
        """`by_rows` are the personal tables to be stored row by row, see `stored_by_rows`."""
        self._n_items = n_items
        self.device = next(iter(initial.values())).device
        self.rows_in_memory = rows_in_memory
        self._empty = partial(RowStore, n_clients, self.device, rows_in_memory)
        self.initial = {leaf.name: initial[leaf.name] for leaf in method.select(home=Home.PERSONAL)}
        self.whole: Params = {}
        self.tables: Params = {}
        self.residuals: StoredResiduals | None = None  # only if uploads are coded
        self.rows: dict[str, RowStore] = {name: self._empty() for name in method.view.keeps}
        for leaf in method.select(home=Home.PERSONAL):
            start = self.initial[leaf.name]
            if leaf.name in by_rows:
                if leaf.fades_with:
                    raise ConfigError(
                        f"the tables {leaf.name!r} of {n_clients} clients are too large to be kept in full, "
                        "and without that weight decay cannot act on all rows",
                        "add -o decay=touched",
                    )
                self.rows[leaf.name] = self._empty()
                continue
            place = self.tables if leaf.per_item else self.whole
            place[leaf.name] = start.expand(n_clients, *start.shape).clone()

    def get(self, name: str, group: TouchedRows) -> Tensor:
        """The group's rows of a personal per-item leaf. Untouched rows have their initial values."""
        if name in self.tables:
            return group.of(self.tables[name])
        start = self.initial[name].index_select(0, group.items)
        rows = (_tensor(group.clients), group.items, group.counts, start)
        return self.rows[name].overlay(*rows, self._n_items)

    def put(self, name: str, group: TouchedRows, values: Tensor, fading: Tensor | None = None) -> None:
        """Store the group's rows. Rows of a shared leaf replace all earlier ones; a personal leaf grows.

        All other rows of a table are multiplied by the clients' factors `fading` [n_clients, 1].
        """
        if name in self.tables:
            if fading is not None:
                clients = torch.from_numpy(group.clients).to(self.device)
                self.tables[name][clients] *= fading.unsqueeze(-1)
            group.put(self.tables[name], values)
            return
        rows = (_tensor(group.clients), group.items, group.counts, values)
        if name in self.initial:
            self.rows[name].merge(*rows, self._n_items)
        else:
            self.rows[name].put(*rows)

    def table(self, name: str, clients: Ints, base: Tensor | None = None) -> Tensor:
        """The clients' tables [len(clients), n_items, *shape].

        Kept rows of a shared leaf override `base`, which is that leaf's table or one table per client.
        """
        if name in self.tables:
            return self.tables[name].index_select(0, torch.from_numpy(clients).to(self.device))
        under = self.initial[name] if base is None else base
        table = under.expand(len(clients), *under.shape[-2:]).clone()
        held = self.rows[name].take(_tensor(clients))
        if len(held.items):
            place = torch.arange(len(clients)).repeat_interleave(held.counts).to(self.device)
            table[place, held.items] = held.values
        return table

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
                items, values = (tensors[f"{name}/{part}"].to(self.device) for part in ClientRows._fields)
                self.rows[name].put(torch.tensor([client]), items, torch.tensor([len(items)]), values)

    def copy(self) -> PersonalStore:
        """A copy that is unaffected by later changes of this one. Held rows are not copied."""
        twin = copy(self)
        twin.whole = {name: values.clone() for name, values in self.whole.items()}
        twin.tables = {name: values.clone() for name, values in self.tables.items()}
        twin.rows = {name: rows.copy() for name, rows in self.rows.items()}
        twin.residuals = self.residuals.copy() if self.residuals else None
        return twin

    def tensors(self) -> Params:
        """Everything as named tensors: rows as (clients, counts, items, values)."""
        stored = ((name, rows.tensors()) for name, rows in self.rows.items())
        return self._without_rows | _named(stored)

    def writable(self) -> Writable:
        """The same, with rows in pieces."""
        stored = ((name, rows.writable()) for name, rows in self.rows.items())
        return self._without_rows | _named(stored)

    @property
    def _without_rows(self) -> Params:
        """Everything but rows, as named tensors."""
        return self.whole | self.tables | (self.residuals.tensors() if self.residuals else {})

    def restore(self, tensors: Params) -> None:
        """Restore the output of `tensors`."""
        if self.residuals:
            self.residuals.restore(tensors)
        self.whole = {name: tensors[name].to(self.device).clone() for name in self.whole}
        self.tables = {name: tensors[name].to(self.device).clone() for name in self.tables}
        for name in self.rows:
            self.rows[name] = self._empty()
            self.rows[name].restore(name, tensors)


class StoredResiduals:
    """What the coding of uploads left out, kept by each client for its next upload (error feedback).

    A client keeps those of the rows of its last upload. A row that it does not touch the next time is
    dropped: its own items come again in every round, drawn negatives hardly ever do. Nothing is kept of a
    network: its codings leave out little, and it may be larger than all of a client's rows.
    """

    def __init__(self, leaves: tuple[Leaf, ...], n_clients: int, device: torch.device) -> None:
        self._n_clients, self._device = n_clients, device
        names = [leaf.sent_as for leaf in leaves if leaf.sent_as and leaf.per_item]
        self._stores = {name: RowStore(n_clients, device) for name in names}

    def added(self, clients: Ints, upload: Upload) -> Upload:
        """The uploads, each with what is left of the same rows."""
        who = torch.from_numpy(clients).long()
        changes = dict(upload.changes)
        for name, store in self._stores.items():
            nothing = torch.zeros_like(changes[name])
            left = store.overlay(who, upload.rows, upload.row_counts, nothing, _ROWS)
            changes[name] = changes[name] + left
        return Upload(upload.rows, upload.row_counts, changes)

    def keep(self, clients: Ints, whole: Upload, sent: Upload) -> None:
        """Keep the difference between the uploads and what the server decodes."""
        who = torch.from_numpy(clients).long()
        places = torch.searchsorted(
            row_keys(whole.rows, whole.row_counts, _ROWS), row_keys(sent.rows, sent.row_counts, _ROWS)
        )
        for name, store in self._stores.items():
            left = whole.changes[name].clone()
            left[places] -= sent.changes[name]
            store.put(who, whole.rows, whole.row_counts, left)

    def copy(self) -> StoredResiduals:
        """A copy that is unaffected by later changes of this one."""
        twin = copy(self)
        twin._stores = {name: store.copy() for name, store in self._stores.items()}
        return twin

    def tensors(self) -> Params:
        """Everything as named tensors, ready to be saved."""
        return {
            f"{_RESIDUAL}{name}/{part}": value
            for name, store in self._stores.items()
            for part, value in store.tensors().items()
        }

    def restore(self, tensors: Params) -> None:
        """Restore the output of `tensors`."""
        for name in self._stores:
            self._stores[name] = RowStore(self._n_clients, self._device)
            self._stores[name].restore(f"{_RESIDUAL}{name}", tensors)


def stored_by_rows(method: Method, n_clients: int, n_items: int, dtype: torch.dtype) -> list[str]:
    """The personal tables that are too large to be stored in full for so many clients."""
    leaves = method.select(home=Home.PERSONAL, per_item=True)
    size = n_clients * n_items * dtype.itemsize
    return [leaf.name for leaf in leaves if size * leaf.size > TABLE_BYTES]


def _named(stored: Iterable[tuple[str, dict[str, T]]]) -> dict[str, T]:
    return {f"{name}/{part}": value for name, parts in stored for part, value in parts.items()}


def stored_rows(tensors: Params) -> list[str]:
    """The names of the leaves that are stored row by row in the output of `PersonalStore.tensors`."""
    return [name.removesuffix("/clients") for name in tensors if name.endswith("/clients")]


def _tensor(clients: Ints) -> Tensor:
    return torch.from_numpy(clients.astype("int64", copy=False))


@dataclass(frozen=True)
class State:
    """All state that is kept from one round to the next."""

    shared: Params  # on the server; tailored leaves have a first axis of clients
    memory: Params  # on the server, used only by its aggregate
    personal: PersonalStore  # on the clients
    device: torch.device
    dtype: torch.dtype
    tailored: frozenset[str] = frozenset()

    @classmethod
    def initial(
        cls,
        method: Method,
        n_clients: int,
        n_items: int,
        *,
        seed: int,
        device: torch.device,
        dtype: torch.dtype,
        rows_in_memory: int = IN_MEMORY,
        federation: int | None = None,
    ) -> State:
        """The state before the first round.

        `federation` is the number of clients of all processes, if these are only some of them.
        """
        by_rows = stored_by_rows(method, federation or n_clients, n_items, dtype)
        start = {leaf.name: leaf.initial(n_items, seed).to(device, dtype) for leaf in method.leaves}
        start |= method.view.derive({leaf.name: start[leaf.name] for leaf in method.select(per_item=True)})
        shared = {leaf.name: start[leaf.name] for leaf in method.select(home=Home.SHARED)}
        for name in method.tailored:
            shared[name] = shared[name].expand(n_clients, *shared[name].shape).clone()
        personal = PersonalStore(
            method, start, n_clients, n_items, by_rows=by_rows, rows_in_memory=rows_in_memory
        )
        return cls(shared, method.memory(shared), personal, device, dtype, method.tailored)

    def copy(self) -> State:
        """A copy that is unaffected by further rounds, which change tailored tables in place."""
        shared = {name: v.clone() if name in self.tailored else v for name, v in self.shared.items()}
        return replace(self, shared=shared, personal=self.personal.copy())

    def of_server(self, tensors: Params) -> State:
        """A copy with another server state and the same clients."""
        shared, memory = ({name: tensors[name] for name in part} for part in (self.shared, self.memory))
        return replace(self, shared=shared, memory=memory)

    def tensors(self) -> tuple[Params, Params]:
        """Tensors of the server and of the clients, as `Simulation.restore` expects them."""
        return self.shared | self.memory, self.personal.tensors()

    def writable(self) -> tuple[Params, Writable]:
        """The same, with clients' rows in pieces."""
        return self.shared | self.memory, self.personal.writable()
