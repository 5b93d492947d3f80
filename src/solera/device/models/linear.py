"""Closed forms, `fedease` and `fedslist`: a memory of the history times weights between items.

score(j) = Σ_c Σ_i weight_c(age of i) · B[c, i, j]    over the history's items i

And `fedhist`: two vectors per item. Inputs E form a memory of the history, which vectors Q score.

score(j) = Q[j, 0] + ⟨Σ_i weight(age of i) · E[i], Q[j, 1:]⟩
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from solera.core.types import Floats, Ints
from solera.data.ragged import Ragged, ages, gaps
from solera.device.models.options import EaseOptions, HistOptions, SlistOptions
from solera.device.models.served import Parts, Served, Tensors, cosines
from solera.math.fading import Timing, fading

_AT_ONCE = 64  # items of a history whose rows of a whole matrix are added at once


class Memory(NamedTuple):
    """How the items of a history weigh, in each of some channels."""

    decays: tuple[float, ...]
    timing: Timing | None

    def weights(self, history: Ints, days: Floats | None, asked: float | None) -> Floats:
        """Weights [channels, length]; `asked` counts where the model was trained to read it."""
        reads = self.timing is not None and self.timing.until_next and asked is not None
        whole = Ragged(np.array([0, len(history)]), history, days, np.array([asked]) if reads else None)
        return fading(self.decays, ages(whole), gaps(whole) if self.timing else None, self.timing)


def closed_form(method: str, options: EaseOptions | SlistOptions, tensors: Tensors, n_items: int) -> Served:
    """The model, whose weights have one of three forms (`math.sparse_ridge`)."""
    memory = Memory(options.decays, options.timing)
    if "levels" in tensors:
        return _compact(method, memory, tensors, n_items)
    if options.neighbours:
        return _solved(method, memory, tensors, n_items)
    channels = len(memory.decays)
    held = tensors.rows("weights") // channels  # a federation's may be of an older catalogue
    weights = tensors.take("weights", channels * held, held).reshape(channels, held, held)
    if held != n_items:
        grown = np.zeros((channels, n_items, n_items), dtype=weights.dtype)
        grown[:, :held, :held] = weights
        weights = grown
    return WholeMatrix(method, memory, weights)


def _compact(method: str, memory: Memory, tensors: Tensors, n_items: int) -> Served:
    counts = tensors.take("counts", n_items, kinds=(np.int32,))
    scales = tensors.take("scales", n_items, kinds=(np.float32,))
    sources = tensors.take("sources", None, kinds=(np.uint16, np.int32))
    levels = tensors.take("levels", None, kinds=(np.int8,))
    if counts.min() < 0 or not counts.sum(dtype=np.int64) == len(sources) == len(levels):
        raise tensors.fault("weights that do not fit their counts")
    _check_sources(tensors, sources, n_items * len(memory.decays))
    return SparseWeights(method, memory, counts, sources, levels, scales)


def _solved(method: str, memory: Memory, tensors: Tensors, n_items: int) -> Served:
    ids = tensors.take("neighbours", None, None, kinds=(np.int32,))
    values = tensors.take("weights", *ids.shape)
    channels, held = len(memory.decays), len(ids)
    _check_sources(tensors, ids, held * channels)
    counts = np.full(n_items, ids.shape[1])
    counts[held:] = 0
    return SparseWeights(method, memory, counts, ids.ravel(), values.ravel(), np.ones(n_items))


def _check_sources(tensors: Tensors, sources: NDArray[Any], limit: int) -> None:
    if sources.size and not 0 <= int(sources.min()) <= int(sources.max()) < limit:
        raise tensors.fault("weights of items that do not exist")


class SparseWeights(Served):
    """Weights item by item: item j has counts[j] sources; a weight is a value times scales[j].

    Channel c of item i is source i · channels + c.
    """

    is_linear = True

    def __init__(  # noqa: PLR0917
        self,
        method: str,
        memory: Memory,
        counts: Ints,
        sources: NDArray[Any],
        values: NDArray[Any],
        scales: NDArray[Any],
    ) -> None:
        super().__init__(method, len(counts))
        self.memory, self.sources, self.values, self.scales = memory, sources, values, scales
        self.ends = np.cumsum(counts, dtype=np.int64)

    def scores(self, history: Ints, days: Floats | None = None, asked: float | None = None) -> Floats:
        """Only weights from the history are looked at."""
        channels = len(self.memory.decays)
        memory = np.zeros((self.n_items, channels))
        np.add.at(memory, history, self.memory.weights(history, days, asked).T)
        met = np.zeros(self.n_items * channels, dtype=np.bool_)
        met.reshape(self.n_items, channels)[history] = True
        places = np.flatnonzero(met[self.sources])
        items = np.searchsorted(self.ends, places, side="right")
        parts = memory.ravel()[self.sources[places]] * self.values[places]
        found = np.zeros(self.n_items)
        np.add.at(found, items, parts * self.scales[items])
        return found

    def parts(
        self, history: Ints, items: Sequence[int], days: Floats | None = None, asked: float | None = None
    ) -> list[Parts]:
        """Every weight from an item of the history, times how much it weighs."""
        weights, found = self.memory.weights(history, days, asked), []
        column = np.zeros((self.n_items, len(self.memory.decays)))
        for item in items:
            place = slice(self.ends[item - 1] if item else 0, self.ends[item])
            column[:] = 0.0
            np.add.at(column.ravel(), self.sources[place], self.values[place] * float(self.scales[item]))
            found.append(Parts(0.0, (weights.T * column[history]).sum(-1).tolist()))
        return found

    def similarity(self, row: int) -> Floats:
        return self.scores(np.array([row]))


class WholeMatrix(Served):
    """All weights [channels, items, items]."""

    is_linear = True

    def __init__(self, method: str, memory: Memory, weights: NDArray[Any]) -> None:
        super().__init__(method, weights.shape[-1])
        self.memory, self.weights = memory, weights

    def scores(self, history: Ints, days: Floats | None = None, asked: float | None = None) -> Floats:
        weights, found = self.memory.weights(history, days, asked), np.zeros(self.n_items)
        for channel, table in enumerate(self.weights):
            for begin in range(0, len(history), _AT_ONCE):
                some = slice(begin, begin + _AT_ONCE)
                found += weights[channel, some] @ table[history[some]]
        return found

    def parts(
        self, history: Ints, items: Sequence[int], days: Floats | None = None, asked: float | None = None
    ) -> list[Parts]:
        weights = self.memory.weights(history, days, asked)
        rows = self.weights[:, history[:, None], np.asarray(items)]
        return [Parts(0.0, each.tolist()) for each in np.einsum("cl,cli->il", weights, rows)]

    def similarity(self, row: int) -> Floats:
        return self.scores(np.array([row]))


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
