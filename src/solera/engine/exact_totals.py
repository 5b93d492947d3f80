"""Sums over clients that are the same in any order, and so for any number of ranks.

Every number is rounded to a multiple of one power of two, and the multiples are added as 64-bit integers. If
there are few items, the sums of a shard are rounded instead of single numbers, which is faster then.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor

from solera.core.errors import DivergedError
from solera.core.method import Method
from solera.core.spec import Params
from solera.core.upload import Totals, add_rows

LARGEST = 2.0**20  # change of a number by one client; PFedRec, tuned, reached 1300
FEW_ITEMS = 16_384
_BITS = 62  # of a sum, without its sign and one to spare


class ExactTotals(Totals):
    """Totals of a round with so many clients. If tables are divided by rows, of `rows` of the items."""

    DTYPE: ClassVar[torch.dtype] = torch.int64

    def __init__(
        self, method: Method, n_items: int, device: torch.device, clients: int, rows: int | None = None
    ) -> None:
        super().__init__(method.leaves, n_items if rows is None else rows, device)
        self._largest = LARGEST * (n_items if method.weighted else 1)
        self._scale = 2.0 ** math.floor(_BITS - math.log2(max(1, clients) * self._largest))
        self.diverged = False  # all ranks raise the error together, see `raise_together`
        self._shard: Params = {}  # what has been added since the last shard ended, if there are few items
        if n_items <= FEW_ITEMS:
            self._shard = {name: torch.zeros_like(v, dtype=torch.float64) for name, v in self._sums.items()}
        self._clients = max(1, clients)

    def _put(self, name: str, rows: Tensor | None, change: Tensor) -> None:
        """Add clients' changes of rows, or of a whole leaf."""
        if self._shard:
            add_rows(self._shard[name], rows, change.double())
        elif self._fits(change, self._largest):
            add_rows(self._sums[name], rows, self._whole(change))

    def end_shard(self) -> None:
        """Round what has been added since the shard before ended."""
        for name, values in self._shard.items():
            if self._fits(values, self._clients * self._largest):
                self._sums[name] += self._whole(values)
            values.zero_()

    def _fits(self, values: Tensor, largest: float) -> bool:
        if not values.numel():
            return False
        low, high = values.aminmax()
        if max(-float(low), float(high)) <= largest:
            return True
        self.diverged = True
        return False

    def _whole(self, values: Tensor) -> Tensor:
        """Numbers as multiples of the power of two."""
        return values.mul(self._scale).round_().to(self.DTYPE)

    def reduce(self, add: Callable[[Tensor], None], *, rows: bool = True) -> None:
        """Add the totals of other ranks. Without `rows`, those of per-item leaves are whole already."""
        raise_together(self.diverged, add)
        super().reduce(add, rows=rows)
        self._sums = {name: values.double().div_(self._scale) for name, values in self._sums.items()}


def raise_together(diverged: bool, add: Callable[[Tensor], None]) -> None:
    """Raise an error on all ranks if the numbers of any of them diverged."""
    ranks = torch.tensor([float(diverged)])
    add(ranks)
    if float(ranks):
        raise DivergedError(
            f"a client changed a number by more than {LARGEST:,.0f}, or it is not finite",
            "lower the learning rate with -o learning_rate=…",
        )
