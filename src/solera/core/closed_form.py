"""One-round methods: clients send sums over their own history, and the server solves for a model.

There is no training and no stored user vector. A device scores items from a memory of its own history, so a
user who never took part is served like any other. The server only needs the total of the clients' sums, so
these methods work with secure aggregation unchanged.

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
from typing import ClassVar, Literal, NamedTuple, Protocol, Self

import numpy as np
from pydantic import Field, model_validator
from torch import Tensor

from solera.core.content import NO_PRIOR, AttributeOptions, AttributePrior, ItemAttributes
from solera.core.errors import DataError
from solera.core.leaf import Home, Leaf
from solera.core.method import Method
from solera.core.sparse import Rows, bytes_of_total
from solera.core.types import Floats, Ints

NEIGHBOURS, WEIGHTS = "neighbours", "weights"  # a solved model, see `math.sparse_ridge`
MAX_BYTES = 6 << 30  # limit for the largest of the summed matrices


class ClosedFormConfig(AttributeOptions):
    """Settings of a one-round method."""

    neighbours: int = Field(
        default=0,
        ge=0,
        le=2000,
        description="weights kept per item, solved on its best neighbours in sparse matrices; 0: all",
    )
    decay_days: float = Field(
        default=0.0, ge=0, description="D: days of a step of a decay, by the times of items; 0: a position"
    )

    @model_validator(mode="after")
    def _priors_on_all_weights(self) -> Self:
        if self.reads_attributes and self.neighbours:
            raise ValueError("options of attributes need all weights: omit neighbours")
        return self


class Channels(NamedTuple):
    """The number of values a summed matrix holds per pair of items, as rows × columns.

    Only half of a `symmetric` matrix is sent. A sketch has one row per item and `width` columns that do not
    belong to items. Clients clip every value at `largest`. Values that are `whole` numbers are added exactly
    in single precision.
    """

    rows: int
    columns: int
    symmetric: bool = False
    width: int | None = None
    largest: float = 1024.0
    whole: bool = False

    def shape(self, items: int) -> tuple[int, int, int, int]:
        """Shape of a block on `items` items: row channels, items, column channels, and items or the width."""
        return self.rows, items, self.columns, self.width or items


class Contribution(NamedTuple):
    """A client's part of every sum. It is zero outside the client's own items."""

    items: Ints  # distinct, [m]
    blocks: Mapping[str, Floats]  # block shapes as given by `Channels.shape(m)`

    def numbers(self, sums: Mapping[str, Channels]) -> int:
        """How many numbers the client sends: its item ids and the non-zero entries of every sum."""
        sent = len(self.items)
        for name, block in self.blocks.items():
            filled = int(np.count_nonzero(block))
            if sums[name].symmetric:
                square = block.reshape(block.shape[0] * block.shape[1], -1)
                filled = (filled + int(np.count_nonzero(square.diagonal()))) // 2
            sent += filled
        return sent


class Memory(Protocol):
    """How a device weights its history when it scores items."""

    @property
    def label(self) -> str:
        """A short label for this choice."""
        ...

    @property
    def channels(self) -> int:
        """How many values are remembered per item."""
        ...

    def weights(self, ages: Ints, gaps: Floats | None = None) -> Floats:
        """Weights [channels, m] of items by age; the most recent item has age 0.

        `gaps` are the days that have passed since, given to a method that fades by days.
        """
        ...


class Summary(Protocol):
    """What a client computes from its history."""

    @property
    def label(self) -> str:
        """A short label for this choice."""
        ...

    @property
    def sums(self) -> Mapping[str, Channels]:
        """The matrices that are summed."""
        ...

    def of(self, sequence: Ints, days: Floats | None = None) -> Contribution:
        """The contribution of a client, given its items, oldest first, and their days if they are needed."""
        ...


class Solve:
    """How the server solves for the model, given the totals.

    With `neighbours`, totals are sparse, and the model keeps so many neighbours of every item.
    """

    @property
    def label(self) -> str:
        """A short label for this choice."""
        raise NotImplementedError

    @property
    def neighbours(self) -> int:
        """How many neighbours an item keeps; 0: all."""
        return 0

    def solve(self, totals: Mapping[str, Tensor], prior: AttributePrior = NO_PRIOR) -> Tensor:
        """The matrix [channels · items, items] that memories are multiplied by. May overwrite the totals."""
        raise NotImplementedError

    def solve_sparse(self, totals: Mapping[str, Rows]) -> tuple[Tensor, Tensor]:
        """Sources and weights of every item's neighbours, as in `math.sparse_ridge`.

        Totals are held by targets; of symmetric ones only the upper half.
        """
        raise NotImplementedError


class Times(Protocol):
    """How a method reads the times of items."""

    @property
    def until_next(self) -> bool:
        """Whether memories fade until the time of the request."""
        ...


@dataclass(frozen=True)
class ClosedForm:
    """A one-round method and its config. Independent of engines, data sets and evaluation."""

    name: str
    paper: str
    config: ClosedFormConfig
    scorer: Memory
    update: Summary
    aggregate: Solve
    timing: Times | None = None
    attributes: ItemAttributes | None = None  # of the catalogue, as the server knows them

    @property
    def prior(self) -> AttributePrior:
        """The prior from attributes of items. Raises an error if it needs some that are not known."""
        return self.config.prior(self.attributes)

    @property
    def choices(self) -> dict[str, str]:
        """Labels of the five choices."""
        return {
            "scorer": self.scorer.label,
            "view": "shared as it is",
            "loss": "squared error",
            "update": self.update.label,
            "aggregate": self.aggregate.label,
        }

    @property
    def neighbours(self) -> int:
        """How many neighbours of every item are kept; 0: all."""
        return self.aggregate.neighbours

    @property
    def timed(self) -> bool:
        """Whether histories need times."""
        return self.config.decay_days > 0

    @property
    def reads_request_time(self) -> bool:
        """Whether scores depend on when they are asked for."""
        return False if self.timing is None else self.timing.until_next

    one_round: ClassVar[Literal[True]] = True  # tells methods apart; see `AnyMethod`
    rounds_needed: ClassVar[int] = 1
    client_share: ClassVar[float] = 1.0
    leaves: ClassVar[tuple[Leaf, ...]] = ()
    tailored: ClassVar[frozenset[str]] = frozenset()
    popularity_power: ClassVar[float] = 0.0
    weighted: ClassVar[bool] = False
    sums_alone: ClassVar[bool] = True
    serves_from_history: ClassVar[bool] = True

    def select(self, *, home: Home | None = None, per_item: bool | None = None) -> tuple[Leaf, ...]:
        """No leaves, because nothing is trained."""
        return ()

    def shared_shapes(self, n_items: int) -> dict[str, tuple[int, ...]]:
        """The shape of the solved matrix, or of every item's neighbours and their weights."""
        if self.neighbours:
            return dict.fromkeys((NEIGHBOURS, WEIGHTS), (n_items, self.neighbours))
        return {WEIGHTS: (self.scorer.channels * n_items, n_items)}

    def bytes_needed(self, n_items: int, lengths: Ints | None = None) -> int:
        """An estimate: all sums, the solution and as much again while it is solved, in doubles.

        The size of sparse sums depends on the `lengths` of histories: every pair of a client's items is
        counted, also if other clients have it too. Without them, only the solution is counted.
        """
        if self.neighbours:
            sums = 0 if lengths is None else self._sparse_bytes(n_items, lengths)
            return 16 * n_items * self.neighbours + sums
        sums = sum(prod(each.shape(n_items)) for each in self.update.sums.values())
        return 8 * (sums + 2 * self.scorer.channels * n_items**2)

    def _sparse_bytes(self, n_items: int, lengths: Ints) -> int:
        pairs = int(np.square(lengths, dtype=np.int64).sum())
        found = 0
        for each in self.update.sums.values():
            held = each.rows * each.columns / (2 if each.symmetric else 1)  # of a pair
            found += bytes_of_total(int(held * pairs), int(held * n_items**2))
        return found

    def check(self, n_items: int) -> None:
        """Raise an error if matrices of item × item would be too large."""
        if self.neighbours:
            return
        solved = self.scorer.channels * n_items**2
        largest = max(solved, *(prod(each.shape(n_items)) for each in self.update.sums.values())) * 8
        if largest > MAX_BYTES:
            raise DataError(
                f"{self.name!r} needs a matrix of items × items, which for {n_items:,} items takes "
                f"{largest / 2**30:.1f} GiB"
                f" (at most {MAX_BYTES / 2**30:.0f})",
                "give -o neighbours=200, which keeps the best neighbours of every item; or keep fewer items "
                "with --min-interactions",
            )


AnyMethod = Method | ClosedForm  # trained or solved in one round, told apart by `one_round`


def by_item(sequence: Ints, blocks: Mapping[str, Floats]) -> Contribution:
    """Convert blocks over sequence positions to blocks over items; entries of repeated items add up."""
    items, place = np.unique(sequence, return_inverse=True)
    if len(items) == len(sequence):
        return Contribution(sequence, blocks)
    member = (place == np.arange(len(items))[:, None]).astype(np.float64)
    added = {
        name: np.einsum("xk,rkcl,yl->rxcy", member, block, member, optimize=True)
        for name, block in blocks.items()
    }
    return Contribution(items, added)
