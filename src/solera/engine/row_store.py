"""Rows of a per-item leaf that clients hold, in a few large segments instead of one object per client.

A segment has the rows of many clients, one client after the other, and is never changed. Three arrays say
where each client's rows are. So a copy of the store shares all segments, and its size is that of the rows.
Large stores are files that the operating system maps into memory.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from solera.core.leaf import Params


class Padding:
    """Convert rows of several clients to a table [clients, width], padded with zeros, and back."""

    def __init__(self, counts: Tensor, device: torch.device) -> None:
        width = int(counts.max())
        ends = counts.cumsum(0)
        begin = torch.arange(len(counts)) * width - (ends - counts)
        self._place = (torch.arange(int(ends[-1])) + begin.repeat_interleave(counts)).to(device)
        self._shape = len(counts), width

    def pad(self, rows: Tensor) -> Tensor:
        """Convert [rows, ...] to [clients, width, ...]."""
        shape = rows.shape[1:]
        flat = rows.new_zeros(self._shape[0] * self._shape[1], *shape).index_copy_(0, self._place, rows)
        return flat.view(*self._shape, *shape)

    def unpad(self, table: Tensor) -> Tensor:
        """Convert [clients, width, ...] back to [rows, ...]."""
        return table.flatten(0, 1).index_select(0, self._place)


IN_MEMORY = 2 << 30  # default of the bytes of a leaf's rows above which new segments are mapped files
SPARE = 0.12  # share of rows that nobody holds any more above which segments are packed again
PIECE_ROWS = 1 << 20  # of a segment that is made by packing, and of what is saved at a time
STORED = ("clients", "counts", "items", "values")  # the tensors of a saved store


class ClientRows(NamedTuple):
    """Rows of a per-item leaf that one client holds: ascending item numbers and their values."""

    items: Tensor
    values: Tensor


class HeldRows(NamedTuple):
    """Rows of several clients, client after client: `counts[c]` rows of the c-th."""

    items: Tensor
    values: Tensor
    counts: Tensor


class Segment(NamedTuple):
    """Rows of some clients, one client after the other. It never changes."""

    items: Tensor  # 32 bits
    values: Tensor
    files: tuple[mmap.mmap, ...] = ()  # that items and values are mapped from

    def taken(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Copies of some rows. What a mapped file has in memory for that is given back."""
        found = self.items[rows].long(), self.values[rows]
        for file in self.files:
            if hasattr(file, "madvise"):  # not on Windows
                file.madvise(mmap.MADV_DONTNEED)
        return found


@dataclass(frozen=True)
class RowPieces:
    """Items or values of all rows of a store, client after client."""

    store: RowStore
    part: Literal["items", "values"]

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of rows, and the shape of one."""
        return (self.store.held, *self._example.shape[1:])

    @property
    def dtype(self) -> torch.dtype:
        """The type of the numbers."""
        return self._example.dtype

    @property
    def _example(self) -> Tensor:
        example: Tensor = getattr(self.store.take(self.store.clients[:1]), self.part)
        return example

    def __iter__(self) -> Iterator[Tensor]:
        """The pieces, in order."""
        for held in self.store.pieces():
            yield getattr(held, self.part)


class RowStore:
    """The rows of all clients. Behaves like a mapping from client to `ClientRows`."""

    def __init__(self, n_clients: int, device: torch.device, in_memory: int = IN_MEMORY) -> None:
        """New segments are mapped files if all rows take more than `in_memory` bytes."""
        self.device, self._in_memory = device, in_memory
        self._segments: dict[int, Segment] = {}
        self._holders: dict[int, int] = {}  # how many clients have their rows in a segment
        self._where = torch.full((n_clients,), -1, dtype=torch.int32)  # segment
        self._start = torch.zeros(n_clients, dtype=torch.int64)
        self._count = torch.zeros(n_clients, dtype=torch.int64)
        self._rows = self._held = 0  # in all segments, and those that a client holds
        self._next = 0

    def copy(self) -> RowStore:
        """A copy that is unaffected by later changes. It shares all rows with this store."""
        twin = RowStore(0, self.device, self._in_memory)
        twin._segments, twin._holders = dict(self._segments), dict(self._holders)
        twin._where, twin._start, twin._count = (
            self._where.clone(),
            self._start.clone(),
            self._count.clone(),
        )
        twin._rows, twin._held, twin._next = self._rows, self._held, self._next
        return twin

    def __contains__(self, client: int) -> bool:
        return bool(self._where[client] >= 0)

    def __getitem__(self, client: int) -> ClientRows:
        if client not in self:
            raise KeyError(client)
        held = self.take(torch.tensor([client]))
        return ClientRows(held.items, held.values)

    def __iter__(self) -> Iterator[int]:
        return iter(self.clients.tolist())

    def __len__(self) -> int:
        return len(self.clients)

    @property
    def clients(self) -> Tensor:
        """The clients that hold rows, ascending."""
        return (self._where >= 0).nonzero().squeeze(1)

    @property
    def held(self) -> int:
        """The number of rows that clients hold."""
        return self._held

    @property
    def nbytes(self) -> int:
        """Bytes of all segments and of the arrays that describe them."""
        rows = sum(each.items.nbytes + each.values.nbytes for each in self._segments.values())
        return rows + self._where.nbytes + self._start.nbytes + self._count.nbytes

    def tensors(self) -> Params:
        """Everything as tensors, ready to be saved. Items and values are left out if nobody holds rows."""
        clients = self.clients
        held = self.take(clients)
        found = {"clients": clients, "counts": held.counts}
        return found | {"items": held.items, "values": held.values} if len(clients) else found

    def restore(self, name: str, tensors: Params) -> None:
        """Put back what was saved as `tensors`, under names that begin with `name`/."""
        clients, counts = (tensors[f"{name}/{part}"].cpu() for part in ("clients", "counts"))
        if len(clients):
            items, values = (tensors[f"{name}/{part}"].to(self.device) for part in ("items", "values"))
            self.put(clients, items, counts, values)

    def pieces(self) -> Iterator[HeldRows]:
        """The rows of all clients that hold any, some clients at a time."""
        clients = self.clients
        piece = torch.div(self._count[clients].cumsum(0), PIECE_ROWS, rounding_mode="floor")
        for number in torch.unique(piece).tolist():
            yield self.take(clients[piece == number])

    def writable(self) -> dict[str, Tensor | RowPieces]:
        """The same as `tensors`, with items and values in pieces."""
        clients = self.clients
        found: dict[str, Tensor | RowPieces] = {"clients": clients, "counts": self._count[clients]}
        if len(clients):
            found |= {"items": RowPieces(self, "items"), "values": RowPieces(self, "values")}
        return found

    def take(self, clients: Tensor) -> HeldRows:
        """The rows of the given clients, in their order. Clients without rows have none."""
        counts = self._count[clients]
        segments = torch.unique(self._where[clients]).tolist()
        parts = [number for number in segments if number >= 0]
        if not parts:
            example = next(iter(self._segments.values()), None)
            values = torch.empty(0) if example is None else example.values[:0]
            return HeldRows(torch.empty(0, dtype=torch.int64, device=self.device), values, counts)
        if len(parts) == 1:
            return HeldRows(*self._segments[parts[0]].taken(self._source(clients)), counts)
        first = self._segments[parts[0]].values
        total = int(counts.sum())
        items = torch.empty(total, dtype=torch.int64, device=self.device)
        values = first.new_empty((total, *first.shape[1:]))
        ends = counts.cumsum(0)
        for number in parts:
            mine = self._where[clients] == number
            into = _spans(ends[mine] - counts[mine], counts[mine]).to(self.device)
            items[into], values[into] = self._segments[number].taken(self._source(clients[mine]))
        return HeldRows(items, values, counts)

    def put(self, clients: Tensor, items: Tensor, counts: Tensor, values: Tensor) -> None:
        """Replace the rows of these clients. The tensors are copied."""
        left, holders = torch.unique(self._where[clients], return_counts=True)
        self._held += len(items) - int(self._count[clients].sum())
        self._add(clients, items, counts, values)
        for number, some in zip(left.tolist(), holders.tolist(), strict=True):
            if number >= 0:
                self._holders[number] -= some
                if not self._holders[number]:
                    self._drop(number)
        if self._rows - self._held > SPARE * self._rows:
            self._pack()

    def merge(self, clients: Tensor, items: Tensor, counts: Tensor, values: Tensor, n_items: int) -> None:
        """Add rows of these clients to those they hold. A new row replaces one with the same item."""
        held = self.take(clients)
        old, new = row_keys(held.items, held.counts, n_items), row_keys(items, counts, n_items)
        union = torch.unique(torch.cat([old, new]))
        merged = values.new_empty((len(union), *values.shape[1:]))
        if len(old):
            merged[torch.searchsorted(union, old)] = held.values
        merged[torch.searchsorted(union, new)] = values
        owners = torch.div(union, n_items, rounding_mode="floor")
        self.put(clients, union % n_items, torch.bincount(owners.cpu(), minlength=len(clients)), merged)

    def overlay(self, clients: Tensor, items: Tensor, counts: Tensor, values: Tensor, n_items: int) -> Tensor:
        """`values` of the given items of the given clients, replaced where the client holds that row."""
        held = self.take(clients)
        if not len(held.items):
            return values
        keys = row_keys(held.items, held.counts, n_items)
        wanted = row_keys(items, counts, n_items)
        position = torch.searchsorted(keys, wanted).clamp_(max=len(keys) - 1)
        known = keys[position] == wanted
        values[known] = held.values[position[known]]
        return values

    def _add(self, clients: Tensor, items: Tensor, counts: Tensor, values: Tensor) -> None:
        number, self._next = self._next, self._next + 1
        size = (self._rows + len(items)) * (4 + values[:1].nbytes)
        keep = _mapped if size > self._in_memory and self.device.type == "cpu" and len(items) else _copied
        self._segments[number] = keep(items.to(torch.int32), values.detach())
        self._holders[number] = len(clients)
        self._rows += len(items)
        counts = counts.cpu()
        self._where[clients] = number
        self._start[clients] = counts.cumsum(0) - counts
        self._count[clients] = counts

    def _pack(self) -> None:
        """Copy the rows that are held out of segments with spare rows, which are then dropped."""
        for number, segment in list(self._segments.items()):
            holders = (self._where == number).nonzero().squeeze(1)
            if int(self._count[holders].sum()) == len(segment.items):
                continue
            ends = self._count[holders].cumsum(0)
            pieces = torch.div(ends - 1, PIECE_ROWS, rounding_mode="floor").clamp_(min=0)
            for piece in torch.unique(pieces).tolist():
                some = holders[pieces == piece]
                held = self.take(some)
                self._add(some, held.items, held.counts, held.values)
            self._drop(number)

    def _drop(self, number: int) -> None:
        self._rows -= len(self._segments.pop(number).items)
        del self._holders[number]

    def _source(self, clients: Tensor) -> Tensor:
        return _spans(self._start[clients], self._count[clients]).to(self.device)


def _spans(starts: Tensor, counts: Tensor) -> Tensor:
    """The numbers start, start + 1, … of every span, one span after the other."""
    before = counts.cumsum(0) - counts
    return torch.arange(int(counts.sum())) + (starts - before).repeat_interleave(counts)


def row_keys(items: Tensor, counts: Tensor, n_items: int) -> Tensor:
    """One ascending number for each row: the client's place times `n_items`, plus the item."""
    owners = torch.arange(len(counts), device=items.device).repeat_interleave(counts.to(items.device))
    return owners * n_items + items


def _copied(items: Tensor, values: Tensor) -> Segment:
    return Segment(items.clone(), values.clone())


def _mapped(items: Tensor, values: Tensor) -> Segment:
    """A segment in files that are mapped into memory and disappear with it."""
    parts, files = [], []
    with tempfile.TemporaryDirectory(prefix="solera-rows-") as folder:
        for number, source in enumerate((items, values)):
            path = Path(folder) / str(number)
            source.contiguous().numpy().tofile(path)
            with path.open("rb") as file:
                files.append(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
            parts.append(torch.frombuffer(files[-1], dtype=source.dtype).view(source.shape))
    return Segment(parts[0], parts[1], tuple(files))
