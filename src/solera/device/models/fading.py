"""`fedhist`: two vectors per item. Inputs E form a memory of the history, which vectors Q score.

score(j) = Q[j, 0] + ⟨Σ_i weight(age of i) · E[i], Q[j, 1:]⟩
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from solera.core.types import Floats, Ints
from solera.device.models.options import HistOptions
from solera.device.models.served import Parts, Served, Tensors, cosines


class FadingHistory(Served):
    """Scores by item vectors and a memory that fades."""

    is_linear = True

    def __init__(self, method: str, options: HistOptions, tensors: Tensors, n_items: int) -> None:
        super().__init__(method, n_items)
        size = options.embedding_size
        self.decays = np.array(options.decays)
        self.items, self.inputs = (
            tensors.take("items", n_items, 1 + size),
            tensors.take("inputs", n_items, size),
        )

    def _inputs(self, history: Ints) -> Floats:
        """What every item of the history adds to the memory: [length, size]."""
        powers = self.decays[:, None] ** np.arange(len(history))
        weights = (powers / np.sqrt(powers.sum(-1, keepdims=True)))[:, ::-1]
        size = self.inputs.shape[1]
        found: Floats = weights[np.arange(size) * len(self.decays) // size].T * self.inputs[history]
        return found

    def scores(self, history: Ints, days: Floats | None = None, asked: float | None = None) -> Floats:
        memory = np.concatenate([[1.0], self._inputs(history).sum(0)])
        found: Floats = (self.items @ memory.astype(self.items.dtype)).astype(np.float64)
        return found

    def parts(
        self, history: Ints, items: Sequence[int], days: Floats | None = None, asked: float | None = None
    ) -> list[Parts]:
        vectors = self.items[np.asarray(items)].astype(np.float64)
        found = vectors[:, 1:] @ self._inputs(history).T
        return [Parts(float(vector[0]), each.tolist()) for vector, each in zip(vectors, found, strict=True)]

    def similarity(self, row: int) -> Floats:
        return cosines(self.items, row)
