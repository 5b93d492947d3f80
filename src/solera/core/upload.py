"""What leaves a device, and what the server sees of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from solera.core.leaf import Leaf, Params

_FLOAT, _ROW_ID = 4, 4  # bytes on the wire: float32 values, 32-bit row numbers

PLAIN = "plain"  # an unprotected upload


@dataclass(frozen=True)
class Upload:
    """The changes that some clients send. Nothing else leaves them.

    `rows` are item numbers, one client after the other, `row_counts[c]` of them for client c. A per-item
    leaf holds the change of each of these rows, [sum(row_counts), *shape]; any other leaf holds one change
    per client, [n_clients, *shape]. Created by `declared`, so it can only contain leaves on the allow-list.
    """

    rows: Tensor
    row_counts: Tensor
    changes: Params

    @classmethod
    def declared(
        cls, leaves: tuple[Leaf, ...], rows: Tensor, row_counts: Tensor, before: Params, after: Params
    ) -> Upload:
        """The changes of all leaves that may be sent, each under the name of its shared leaf.

        The rows of a leaf that fades are compared with what they would be if the client had not touched them.
        The server adds what became of all rows, see `methods.fedrap`.
        """
        changes = {}
        for leaf in leaves:
            if leaf.sent_as:
                start = before[leaf.name]
                if leaf.fades_with:
                    start = start * after[leaf.fades_with].repeat_interleave(row_counts.to(rows.device), 0)
                changes[leaf.sent_as] = after[leaf.name] - start
        return cls(rows, row_counts, changes)

    @property
    def n_clients(self) -> int:
        """The number of clients these uploads come from."""
        return len(self.row_counts)

    def of_client(self, place: int, leaves: tuple[Leaf, ...]) -> Upload:
        """The upload of one client, by its index among them."""
        return self.take(torch.tensor([place]), leaves)

    def clipped(self, limit: float) -> Upload:
        """A copy with every number clipped at ± limit."""
        changes = {name: values.clamp(-limit, limit) for name, values in self.changes.items()}
        return Upload(self.rows, self.row_counts, changes)

    def peaks(self, leaves: tuple[Leaf, ...]) -> Tensor:
        """The largest absolute value that each client sends, [n_clients], in double precision."""
        found = torch.zeros(self.n_clients, dtype=torch.float64, device=self.rows.device)
        owner = torch.arange(self.n_clients).repeat_interleave(self.row_counts).to(self.rows.device)
        for leaf in (leaf for leaf in leaves if leaf.sent_as):
            each = self.changes[leaf.sent_as].double().abs().flatten(1).amax(1)
            if leaf.per_item:
                found = found.scatter_reduce(0, owner, each, "amax")
            else:
                found = torch.maximum(found, each)
        return found

    def take(self, places: Tensor, leaves: tuple[Leaf, ...]) -> Upload:
        """The uploads of some clients, by their indices, in the given order."""
        counts = self.row_counts[places]
        shift = (self.row_counts.cumsum(0) - self.row_counts)[places] - (counts.cumsum(0) - counts)
        rows = (torch.arange(int(counts.sum())) + shift.repeat_interleave(counts)).to(self.rows.device)
        per_item = {leaf.sent_as for leaf in leaves if leaf.per_item}
        changes = {
            name: values[rows if name in per_item else places.to(values.device)]
            for name, values in self.changes.items()
        }
        return Upload(self.rows[rows], counts, changes)

    @classmethod
    def joined(cls, uploads: Sequence[Upload]) -> Upload:
        """Concatenate the uploads of several groups of clients."""
        names = uploads[0].changes
        return cls(
            torch.cat([each.rows for each in uploads]),
            torch.cat([each.row_counts for each in uploads]),
            {name: torch.cat([each.changes[name] for each in uploads]) for name in names},
        )


def upload_bytes(row_counts: Tensor, leaves: tuple[Leaf, ...]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Size of the uploads of clients that send so many rows each: row numbers and float32 values."""
    counts = row_counts.cpu().numpy().astype(np.int64)
    sent = [leaf for leaf in leaves if leaf.sent_as]
    per_row = sum(leaf.size for leaf in sent if leaf.per_item) * _FLOAT
    fixed = sum(leaf.size for leaf in sent if not leaf.per_item) * _FLOAT
    return counts * (per_row + _ROW_ID if per_row else 0) + fixed


class Sums(NamedTuple):
    """The summed changes of several clients in one place.

    `rows` are the items that any of them touched, ascending, and `row_weights` the total weight of the
    clients who touched each. A per-item leaf holds the total change of each of these rows, any other leaf the
    total change of the whole leaf.
    """

    rows: Tensor
    row_weights: Tensor
    weight: float
    changes: Params

    @property
    def length(self) -> float:
        """L2 norm over all leaves together."""
        return math.sqrt(sum(float(change.double().square().sum()) for change in self.changes.values()))

    def peak(self, leaves: tuple[Leaf, ...]) -> float:
        """The largest absolute mean over the clients who touched it; at most what any of them sent."""
        found = 0.0
        for leaf in (leaf for leaf in leaves if leaf.sent_as):
            change = self.changes[leaf.sent_as].double().abs()
            if leaf.per_item:
                if len(self.rows):
                    found = max(found, float((change.flatten(1).amax(1) / self.row_weights).max()))
            else:
                found = max(found, float(change.max()) / self.weight)
        return found


class LeafTotal(NamedTuple):
    """The weighted sum of all clients' changes of one leaf, and the weight of the clients behind each row.

    If the leaf is not per item, this is the weight of all clients.
    """

    change: Tensor
    weight: Tensor


class Rounding(Protocol):
    """Clipping and rounding of clients' numbers under secure aggregation, see `fixed_point`."""

    @property
    def clip(self) -> float:
        """The value at which a change is clipped."""
        ...

    def rounded(self, values: Tensor) -> Tensor:
        """Weighted changes, rounded to the precision in which they are added."""
        ...


def add_rows(total: Tensor, rows: Tensor | None, change: Tensor) -> None:
    """Add clients' changes of rows to a table, or of a whole leaf to its total."""
    if rows is None:
        total += change.sum(0)
    else:
        total.index_add_(0, rows, change)


class Totals:
    """Sums over clients: all that a sum-based aggregation needs, regardless of who computes them.

    Sums are kept in double precision, so that the order of the clients does not affect the result.
    """

    DTYPE: ClassVar[torch.dtype] = torch.float64

    def __init__(
        self, leaves: tuple[Leaf, ...], n_items: int, device: torch.device, rounding: Rounding | None = None
    ) -> None:
        self._rounding = rounding
        self.weight = 0.0  # of all clients together
        self.n_items = n_items
        self._leaves = {leaf.sent_as: leaf for leaf in leaves if leaf.sent_as}
        self._sums = {
            name: torch.zeros(
                (n_items, *leaf.shape) if leaf.per_item else leaf.shape, dtype=self.DTYPE, device=device
            )
            for name, leaf in self._leaves.items()
        }
        # The total weight of the clients behind each row.
        self.row_weights = torch.zeros(n_items, dtype=torch.float64, device=device)

    def add(self, upload: Upload, weights: Tensor | None = None) -> None:
        """Add the uploads of a group of clients, each with its weight (or all with weight 1)."""
        if self._rounding:
            upload = upload.clipped(self._rounding.clip)
        self.weight += upload.n_clients if weights is None else float(weights.sum())
        if any(leaf.per_item for leaf in self._leaves.values()):
            each = None if weights is None else weights.repeat_interleave(upload.row_counts)
            self.row_weights += torch.bincount(upload.rows, each, minlength=len(self.row_weights))
        for name, leaf in self._leaves.items():
            change = upload.changes[name]
            if weights is not None:
                each = weights.repeat_interleave(upload.row_counts) if leaf.per_item else weights
                change = change * each.view(-1, *[1] * len(leaf.shape))  # leaves the upload unchanged
            if self._rounding:
                change = self._rounding.rounded(change)
            self._put(name, upload.rows if leaf.per_item else None, change)

    def _put(self, name: str, rows: Tensor | None, change: Tensor) -> None:
        """Add clients' changes of rows, or of a whole leaf."""
        add_rows(self._sums[name], rows, change.to(self.DTYPE))

    def merge(self, sums: Sums) -> None:
        """Add the sums of several clients."""
        self.weight += sums.weight
        self.row_weights.index_add_(0, sums.rows, sums.row_weights.to(self.row_weights))
        for name, leaf in self._leaves.items():
            change = sums.changes[name].to(self._sums[name])
            if leaf.per_item:
                self._sums[name].index_add_(0, sums.rows, change)
            else:
                self._sums[name] += change

    def end_shard(self) -> None:
        """Say that all uploads of a shard of clients have been added."""

    def reduce(self, add: Callable[[Tensor], None]) -> None:
        """Add the totals of other processes; `add` replaces a tensor by its sum over all of them."""
        weight = torch.tensor([self.weight], dtype=torch.float64)
        for values in (weight, self.row_weights, *self._sums.values()):
            add(values)
        self.weight = float(weight)

    def sums(self) -> Sums:
        """The sums without the rows that nobody touched."""
        rows = self.row_weights.nonzero().squeeze(1)
        changes = {
            name: self._sums[name].index_select(0, rows) if leaf.per_item else self._sums[name]
            for name, leaf in self._leaves.items()
        }
        return Sums(rows, self.row_weights.index_select(0, rows), self.weight, changes)

    def covered(self, cover: Callable[[Tensor], Tensor], clients: float) -> Totals:
        """A copy with every sum transformed by `cover`, as if `clients` clients had all touched every row.

        The copy reveals neither which rows were touched nor how many clients took part.
        """
        made = copy(self)
        made.weight = clients
        made._sums = {name: cover(sums).to(sums) for name, sums in self._sums.items()}
        made.row_weights = torch.full_like(self.row_weights, clients)
        return made

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The leaves whose changes are added up."""
        return tuple(self._leaves.values())

    @property
    def names(self) -> list[str]:
        """The shared leaves that clients sent changes for."""
        return list(self._sums)

    def of_rows(self, name: str) -> bool:
        """Whether a leaf is per item."""
        return self._leaves[name].per_item

    def leaf(self, name: str) -> LeafTotal:
        """The totals of one leaf."""
        change = self._sums[name]
        weight = self.row_weights if self._leaves[name].per_item else change.new_tensor(self.weight)
        return LeafTotal(change, weight)
