"""How long the server waits for the last answers of an exchange.

A node that hangs must not hold up all others until the deadline. Once enough nodes have answered, the server
waits for the rest as long as each of them took before, and half as long again. For a node that hangs, or has
never answered, it waits `straggler_wait` seconds longer, in all exchanges of a round together. Enrolment may
take half of what is left: a node that hangs while it enrols must not use up the time of those that train.
"""

from __future__ import annotations

import math
from collections.abc import Collection

ENOUGH = 2 / 3  # share of the nodes asked after which the rest is waited for no longer than usual
_LONGER = 1.5  # times what a node took before
ENROL = "enrol"


class Patience:
    """Knows what nodes took, and how much of a round's waiting is left."""

    def __init__(self, straggler_wait: float) -> None:
        self._wait = self._left = straggler_wait
        self._took: dict[tuple[str, int], float] = {}

    def begin_round(self, wait: float | None = None) -> None:
        """A new round may wait as long as the last, or another time."""
        self._left = self._wait if wait is None else wait

    def answered(self, kind: str, node: int, seconds: float) -> None:
        """A node has answered, in time or not."""
        self._took[kind, node] = seconds

    def spend(self, seconds: float) -> None:
        """So much of the round was spent on waiting for the last."""
        self._left = max(0.0, self._left - seconds)

    def quorum(self, asked: int, threshold: int) -> int:
        """How many answers are enough to lose patience with the rest; `threshold` are needed in any case."""
        return max(1, math.floor(ENOUGH * asked + 1e-9), min(threshold, asked))

    def until(self, kind: str, waiting: Collection[int], enough_at: float) -> float:
        """Seconds after the start of an exchange at which it ends; enough had answered at `enough_at`."""
        known = [_LONGER * self._took[kind, node] for node in waiting if (kind, node) in self._took]
        left = self._left / 2 if kind == ENROL else self._left
        return max(enough_at + left, *known, 0.0)
