"""Methods of one round: clients send sums over their own history, and the server solves for a model.

No training, no stored user vector: a device scores items by what it remembers of its own history, so a user
who has never taken part is served like any other. The server needs the total of the clients' sums and nothing
else, which makes such a method fit for secure aggregation as it is.

    scorer      memory [channels, items] of the own history, times the solved matrix
    view        the matrix as it is
    loss        squared error
    update      sums over the own history
    aggregate   their total, then a linear system
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from solera.core.arrays import Floats, Ints
from solera.core.errors import DataError
from solera.core.spec import Home, Leaf

WEIGHTS = "weights"  # the solved matrix
MAX_BYTES = 6 << 30  # that the largest of the summed matrices may take


class ClosedFormConfig(BaseModel):
    """Settings of a method of one round."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Channels(NamedTuple):
    """How many numbers a summed matrix has for a pair of items, as rows × columns.

    Of a `symmetric` one, half is sent. A sketch has rows of items, and `width` columns that are of none.
    No number of one client is above `largest`; clients cut theirs off there.
    """

    rows: int
    columns: int
    symmetric: bool = False
    width: int | None = None
    largest: float = 1024.0

    def shape(self, items: int) -> tuple[int, int, int, int]:
        """Of a block on so many items: row channels, items, column channels, and items or the width."""
        return self.rows, items, self.columns, self.width or items


class Contribution(NamedTuple):
    """A client's part of every sum, which is zero outside its own items."""

    items: Ints  # distinct, [m]
    blocks: Mapping[str, Floats]  # each of the `shape` that m items have

    def numbers(self, sums: Mapping[str, Channels]) -> int:
        """How many numbers are sent: item numbers, and what is not zero of every sum."""
        sent = len(self.items)
        for name, block in self.blocks.items():
            filled = int(np.count_nonzero(block))
            if sums[name].symmetric:
                square = block.reshape(block.shape[0] * block.shape[1], -1)
                filled = (filled + int(np.count_nonzero(square.diagonal()))) // 2
            sent += filled
        return sent


class Memory(Protocol):
    """What a device remembers of its history when it scores."""

    @property
    def label(self) -> str:
        """The choice in a few words."""
        ...

    @property
    def channels(self) -> int:
        """How many numbers are remembered of an item."""
        ...

    def weights(self, ages: Ints) -> Floats:
        """How strongly, [channels, m], an item of each age is remembered; the latest is of age 0."""
        ...


class Summary(Protocol):
    """What a client sums up of its history."""

    @property
    def label(self) -> str:
        """The choice in a few words."""
        ...

    @property
    def sums(self) -> Mapping[str, Channels]:
        """The matrices that are summed."""
        ...

    def of(self, sequence: Ints) -> Contribution:
        """From the client's items, oldest first."""
        ...


class Solve(Protocol):
    """What the server makes of the total."""

    @property
    def label(self) -> str:
        """The choice in a few words."""
        ...

    def solve(self, totals: Mapping[str, Tensor]) -> Tensor:
        """The matrix [channels · items, items] by which memories are multiplied. May overwrite the totals."""
        ...


@dataclass(frozen=True)
class ClosedForm:
    """A method of one round and its config. Knows nothing of engines, data sets or evaluation."""

    name: str
    paper: str
    config: ClosedFormConfig
    scorer: Memory
    update: Summary
    aggregate: Solve

    @property
    def choices(self) -> dict[str, str]:
        """The five choices in words."""
        return {
            "scorer": self.scorer.label,
            "view": "shared as it is",
            "loss": "squared error",
            "update": self.update.label,
            "aggregate": self.aggregate.label,
        }

    rounds_needed: ClassVar[int] = 1
    client_share: ClassVar[float] = 1.0
    leaves: ClassVar[tuple[Leaf, ...]] = ()
    tailored: ClassVar[frozenset[str]] = frozenset()
    popularity_power: ClassVar[float] = 0.0
    weighted: ClassVar[bool] = False
    sums_alone: ClassVar[bool] = True
    serves_from_history: ClassVar[bool] = True

    def select(self, *, home: Home | None = None, per_item: bool | None = None) -> tuple[Leaf, ...]:
        """Nothing is trained."""
        return ()

    def shared_shapes(self, n_items: int) -> dict[str, tuple[int, ...]]:
        """The solved matrix."""
        return {WEIGHTS: (self.scorer.channels * n_items, n_items)}

    def check(self, n_items: int) -> None:
        """Refuse a catalogue whose square does not fit."""
        solved = self.scorer.channels * n_items**2
        largest = max(solved, *(prod(each.shape(n_items)) for each in self.update.sums.values())) * 8
        if largest > MAX_BYTES:
            raise DataError(
                f"{self.name!r} needs a matrix of items × items, which for {n_items:,} items takes "
                f"{largest / 2**30:.1f} GiB"
                f" (at most {MAX_BYTES / 2**30:.0f})",
                "use fedhist, which needs only two vectors per item, or keep fewer items with "
                "--min-interactions",
            )


def by_item(sequence: Ints, blocks: Mapping[str, Floats]) -> Contribution:
    """Blocks whose rows and columns are places of a sequence; those of an item that repeats are added up."""
    items, place = np.unique(sequence, return_inverse=True)
    if len(items) == len(sequence):
        return Contribution(sequence, blocks)
    member = (place == np.arange(len(items))[:, None]).astype(np.float64)
    added = {
        name: np.einsum("xk,rkcl,yl->rxcy", member, block, member, optimize=True)
        for name, block in blocks.items()
    }
    return Contribution(items, added)
