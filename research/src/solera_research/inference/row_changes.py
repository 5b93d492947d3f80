"""What the server sees of a client in a round, or of a sum over clients: how item rows changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from solera.core.leaf import Params
from solera.core.types import Floats, Ints
from solera.core.upload import Upload

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class SeenRows:
    """Item rows that were sent: their numbers, ascending, and changes, all per-item leaves side by side.

    Leaves that are not per item are not looked at.
    """

    rows: Ints
    changes: Floats  # [len(rows), numbers in a row]
    noise: float = 0.0  # standard deviation of what was added to every number; the mode says it

    @cached_property
    def moved(self) -> Mask:
        """Mask of the rows that changed."""
        moved: Mask = np.any(self.changes, axis=1)
        return moved

    def without_unmoved(self) -> SeenRows:
        """The rows that changed."""
        return SeenRows(self.rows[self.moved], self.changes[self.moved], self.noise)

    def spread(self, values: Floats, n_items: int) -> Floats:
        """Values of the rows as values of all items; −inf where there is no row."""
        everywhere = np.full(n_items, -np.inf)
        everywhere[self.rows] = values
        return everywhere


def flat_rows(table: Tensor) -> Tensor:
    """A table with rows of any shape as one of plain rows; a single number per item is a row too."""
    return table.flatten(1) if table.dim() > 1 else table.unsqueeze(1)


def rows_seen(upload: Upload, tables: Sequence[str]) -> list[SeenRows]:
    """Every client's own, in their order; `tables` are the per-item leaves."""
    beside = torch.cat([flat_rows(upload.changes[name]) for name in tables], dim=1)
    ends = upload.row_counts.cumsum(0)[:-1].numpy()
    rows = np.split(upload.rows.cpu().numpy(), ends)
    return [SeenRows(*each) for each in zip(rows, np.split(beside.double().cpu().numpy(), ends), strict=True)]


def total(parts: Sequence[SeenRows], weights: Floats, n_items: int) -> SeenRows:
    """The weighted sum of all rows, as secure aggregation shows it. A single part is returned unchanged."""
    if len(parts) == 1:
        return parts[0]
    summed = np.zeros((n_items, parts[0].changes.shape[1]))
    for part, weight in zip(parts, weights, strict=True):
        summed[part.rows] += weight * part.changes
    noise = float(np.linalg.norm([weight * part.noise for part, weight in zip(parts, weights, strict=True)]))
    return SeenRows(np.arange(n_items), summed, noise)


@dataclass
class Watchman:
    """An observer who keeps every client's sight of the round he is in."""

    look: Callable[[Ints, Upload], dict[int, SeenRows]]  # what he sees of uploads
    seen: dict[int, SeenRows] = field(default_factory=dict)

    def __call__(self, round_: int, clients: Ints, upload: Upload) -> None:
        """Store the uploads that arrived."""
        self.seen.update(self.look(clients, upload))

    def collect(self) -> dict[int, SeenRows]:
        """Uploads seen since the last call."""
        seen, self.seen = self.seen, {}
        return seen


@dataclass(frozen=True)
class Sent:
    """The model as the server sent it before a round: it knows, since it made it."""

    shared: Params
    tailored: frozenset[str]

    @classmethod
    def of(cls, shared: Mapping[str, torch.Tensor], tailored: frozenset[str]) -> Sent:
        """A copy where the next round would change it."""
        return cls({k: v.clone() if k in tailored else v for k, v in shared.items()}, tailored)

    def rows(self, tables: Sequence[str], clients: Sequence[int]) -> Floats:
        """Item rows as these clients got them, on average: [n_items, numbers in a row]."""
        some = torch.tensor(clients)
        each = (
            self.shared[name][some].mean(0) if name in self.tailored else self.shared[name] for name in tables
        )
        return torch.cat([flat_rows(table) for table in each], dim=1).double().cpu().numpy()

    def to(self, clients: Ints) -> Params:
        """The same model sent to others, each in the place of one of these clients."""
        places = torch.from_numpy(clients)
        return {k: v[places.to(v.device)] if k in self.tailored else v for k, v in self.shared.items()}
