"""Sums over clients that are the same in any order, and so for any number of ranks.

Every number is rounded to a multiple of one power of two, and the multiples are added as 64-bit integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor

from solera.core.errors import DivergedError
from solera.core.method import Method
from solera.core.upload import Totals

LARGEST = 2.0**20  # change of a number by one client; PFedRec, tuned, reached 1300
_BITS = 62  # of a sum, without its sign and one to spare


class ExactTotals(Totals):
    """Totals of a round with so many clients."""

    DTYPE: ClassVar[torch.dtype] = torch.int64

    def __init__(self, method: Method, n_items: int, device: torch.device, clients: int) -> None:
        super().__init__(method.leaves, n_items, device)
        self._largest = LARGEST * (n_items if method.weighted else 1)
        self._scale = 2.0 ** math.floor(_BITS - math.log2(max(1, clients) * self._largest))
        self._diverged = False

    def _put(self, name: str, rows: Tensor | None, change: Tensor) -> None:
        """Add clients' changes of rows, or of a whole leaf, rounded."""
        if change.numel():
            low, high = change.aminmax()
            if not max(-float(low), float(high)) <= self._largest:
                self._diverged = True  # the other ranks are still training: they hear of it in `reduce`
                return
        super()._put(name, rows, change.mul(self._scale).round_().to(self.DTYPE))

    def reduce(self, add: Callable[[Tensor], None]) -> None:
        """Add the totals of other ranks."""
        diverged = torch.tensor([float(self._diverged)])
        add(diverged)
        if float(diverged):
            raise DivergedError(
                f"a client changed a number by more than {LARGEST:,.0f}, or it is not finite",
                "lower the learning rate with -o learning_rate=…",
            )
        super().reduce(add)
        self._sums = {name: values.double().div_(self._scale) for name, values in self._sums.items()}
