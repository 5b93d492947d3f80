"""A blend of two models: (1 − w) · a + w · b, where a and b are their scores, standardised over all items.

Such a score is no sum over the history, so it has no parts.
"""

from __future__ import annotations

from solera.core.types import Floats, Ints
from solera.device.models.served import Served

_LEAST = 1e-12  # standard deviation, so that equal scores become 0


class Blend(Served):
    """Two models that score together."""

    def __init__(self, first: Served, second: Served, weight: float) -> None:
        super().__init__(first.method, first.n_items)
        self.first, self.second, self.weight = first, second, weight

    def scores(self, history: Ints, days: Floats | None = None, asked: float | None = None) -> Floats:
        return self._mixed(self.first.scores(history, days, asked), self.second.scores(history))

    def similarity(self, row: int) -> Floats:
        return self._mixed(self.first.similarity(row), self.second.similarity(row))

    def _mixed(self, first: Floats, second: Floats) -> Floats:
        return (1 - self.weight) * _standardised(first) + self.weight * _standardised(second)


def _standardised(scores: Floats) -> Floats:
    found: Floats = (scores - scores.mean()) / max(float(scores.std()), _LEAST)
    return found
