"""The clients' side of a download: the shared leaves as they decode them, and the bytes that takes."""

from __future__ import annotations

import torch
from torch import Tensor

from solera.core.arrays import Ints
from solera.core.download import Download
from solera.core.method import Method
from solera.core.spec import Home, Params
from solera.engine.server import derived


class Receiving:
    """What clients receive in the rounds of a simulation. Without a coding, that is the shared leaves."""

    def __init__(self, method: Method, n_items: int, coding: Download | None) -> None:
        self._method, self._n_items, self._coding = method, n_items, coding
        self._last: tuple[Params, Params] | None = None
        self._down = self._asked_up = self._asked_down = 0.0

    def memory(self, shared: Params, n_clients: int) -> Params:
        """State that the server keeps for it."""
        return self._coding.memory(shared, n_clients) if self._coding else {}

    def shared(self, shared: Params, memory: Params) -> Params:
        """The shared leaves as clients see them. The last answer is kept for repeated questions."""
        if not self._coding:
            return shared
        if self._last is None or self._last[0] is not shared:
            seen = self._coding.received(shared, memory)
            self._last = shared, seen | derived(self._method, seen)
        return self._last[1]

    def rows(self, shared: Params, memory: Params) -> Params:
        """The shared leaves from which clients train."""
        exact = self._coding is not None and self._coding.exact_rows
        return shared if exact else self.shared(shared, memory)

    def begin(self, memory: Params, clients: Ints) -> Params:
        """Start counting the bytes of a round. Returns the parts of the memory that its downloads change."""
        self._asked_up = self._asked_down = 0.0
        if self._coding:
            self._down, changed = self._coding.sent(memory, clients, self._n_items)
            return changed
        leaves = (leaf for leaf in self._method.select(home=Home.SHARED) if not leaf.derived_from)
        self._down = 4.0 * sum(leaf.size * (self._n_items if leaf.per_item else 1) for leaf in leaves)
        return {}

    def touch(self, memory: Params, rows: Tensor) -> None:
        """Count what clients must ask for to train on these rows."""
        if self._coding:
            up, down = self._coding.asked(memory, rows)
            self._asked_up += up
            self._asked_down += down

    def bytes(self, clients: int) -> tuple[float, float]:
        """Mean bytes of a client in this round: what it asks with, and what it receives."""
        return self._asked_up / clients, self._down + self._asked_down / clients

    def renewed(self, memory: Params, shared: Params, row_weights: Tensor) -> Params:
        """The server's memory after a round."""
        return self._coding.renewed(memory, shared, row_weights) if self._coding else memory

    def scored(self, scores: Tensor, memory: Params) -> Tensor:
        """Scores [clients, n_items]. Items that clients do not receive get the lowest finite score."""
        outside = self._coding.out_of_reach(memory) if self._coding else None
        if outside is not None:
            scores[:, outside] = torch.finfo(scores.dtype).min
        return scores
