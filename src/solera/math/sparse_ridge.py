"""Ridge regressions, each on the few sources that say most about its target, and the weights they give.

For every target j the weights b minimise ‖s b − y_j‖² + reg ‖b‖² over b that are zero outside a support N:

    (S[N, N] + reg · I) b = T[N, j]

with S = Σ s sᵀ and T = Σ s yᵀ. Both are sparse, and S is symmetric: only its upper half is held. A sum of
which small entries are unknown may be indefinite. Then reg is doubled for this target until it is not, and
once more. The support has the k sources with the largest T_ij / S_ii^p, a co-occurrence normalised by how
common the source is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from solera.core.closed_form import NEIGHBOURS, WEIGHTS
from solera.core.leaf import Params
from solera.core.sparse import Numbers, Rows
from solera.core.types import Ints

_POWER = 0.7  # p: of how common a source is
_SYSTEMS = 1 << 29  # bytes of the systems that are set up at once
_SOLVED = 1 << 26  # bytes of those that are solved at once
_FEW = 4096  # targets whose candidates are sorted at once: their numbers fit into 16 bits


class Candidates(NamedTuple):
    """Sources of some targets, in order of the targets."""

    counts: Ints  # of every target
    sources: Ints
    values: Numbers  # T


CandidatesOf = Callable[[int, int], Candidates]  # of the targets from the first number to before the second


class Support(NamedTuple):
    """The sources of some targets [targets, k], ascending, and T there. Unused places are False in `used`."""

    sources: Ints
    values: Numbers
    used: NDArray[np.bool_]


def diagonal(upper: Rows) -> Numbers:
    """The diagonal of a matrix whose upper half is given: the first entry of every row, if it is there."""
    found = np.zeros(len(upper.offsets) - 1, dtype=upper.values.dtype)
    rows = np.flatnonzero(np.diff(upper.offsets))
    first = upper.offsets[rows]
    there = upper.columns[first] == rows
    found[rows[there]] = upper.values[first[there]]
    return found


def of_rows(targets: Rows) -> CandidatesOf:
    """Candidates from T, held target by target."""

    def found(low: int, high: int) -> Candidates:
        place = slice(targets.offsets[low], targets.offsets[high])
        return Candidates(
            np.diff(targets.offsets[low : high + 1]), targets.columns[place], targets.values[place]
        )

    return found


def of_upper(upper: Rows) -> CandidatesOf:
    """Candidates from T = S without its diagonal, of which the upper half is held."""

    def found(low: int, high: int) -> Candidates:
        begin, end = upper.offsets[low], upper.offsets[high]
        rows = np.repeat(np.arange(low, high), np.diff(upper.offsets[low : high + 1]))
        off = upper.columns[begin:end] != rows
        above = np.flatnonzero((upper.columns[:end] >= low) & (upper.columns[:end] < high))
        sources = np.searchsorted(upper.offsets, above, side="right") - 1
        off_above = sources != upper.columns[above]
        target = np.concatenate([upper.columns[above][off_above], rows[off]]) - low
        source = np.concatenate([sources[off_above], upper.columns[begin:end][off]])
        value = np.concatenate([upper.values[above][off_above], upper.values[begin:end][off]])
        order = np.argsort(target.astype(np.uint16), kind="stable")
        return Candidates(np.bincount(target, minlength=high - low), source[order], value[order])

    return found


def solved(
    system: Rows, candidates: CandidatesOf, n_targets: int, k: int, reg: float
) -> tuple[Tensor, Tensor]:
    """The sources [n_targets, k] in 32 bits, and their weights in double precision; 0 where unused."""
    ids = torch.zeros(n_targets, k, dtype=torch.int32)
    weights = torch.zeros(n_targets, k, dtype=torch.float64)
    common = np.maximum(diagonal(system), np.finfo(np.float32).tiny) ** -_POWER
    at_once = max(1, min(_FEW, _SYSTEMS // (k * k * system.values.itemsize)))
    for low in range(0, n_targets, at_once):
        high = min(low + at_once, n_targets)
        support = chosen(candidates(low, high), common, k)
        ids[low:high] = torch.from_numpy(support.sources)
        matrices = gathered(system, support)
        for some in _parts(high - low, max(1, _SOLVED // (8 * k * k))):
            left = torch.from_numpy(matrices[some]).double()
            unused = torch.from_numpy(~support.used[some])
            left.diagonal(dim1=1, dim2=2).add_(reg).masked_fill_(unused, 1.0)
            right = torch.from_numpy(support.values[some]).double().unsqueeze(2)
            found = torch.cholesky_solve(right, _factors(left, reg), upper=True)
            weights[low:high][some] = found.squeeze(2)
    return ids, weights


def _factors(systems: Tensor, reg: float) -> Tensor:
    """Cholesky factors of systems that have reg on their diagonals, or more where there is none."""
    factors: Tensor
    factors, failed = torch.linalg.cholesky_ex(systems, upper=True)
    while bool(failed.any()):
        wrong = failed != 0
        some = systems[wrong]
        some.diagonal(dim1=1, dim2=2).add_(reg)
        systems[wrong], reg = some, 2 * reg
        failed[wrong] = torch.linalg.cholesky_ex(some, upper=True).info
        some.diagonal(dim1=1, dim2=2).add_(reg)  # what is barely definite has weights without bounds
        factors[wrong] = torch.linalg.cholesky_ex(some, upper=True).L
    return factors


def chosen(candidates: Candidates, common: NDArray[Any], k: int) -> Support:
    """The k best candidates of every target."""
    found = len(candidates.counts)
    sources, values = np.zeros((found, k), dtype=np.int64), np.zeros((found, k))
    used = np.zeros((found, k), dtype=np.bool_)
    scores = candidates.values * common[candidates.sources]
    ends = np.cumsum(candidates.counts)
    for target, (count, end) in enumerate(zip(candidates.counts.tolist(), ends.tolist(), strict=True)):
        place = np.arange(end - count, end)
        if count > k:
            place = place[np.argpartition(-scores[place], k - 1)[:k]]
        place = place[np.argsort(candidates.sources[place])]
        sources[target, : len(place)] = candidates.sources[place]
        values[target, : len(place)] = candidates.values[place]
        used[target, : len(place)] = True
    return Support(sources, values, used)


def gathered(system: Rows, support: Support) -> NDArray[Any]:
    """The upper halves of S[N, N] of every target, [targets, k, k]; zero where unused.

    Goes through the rows of S: one is spread out, and read by all targets that it is a source of.
    """
    n, k = support.sources.shape
    matrices = np.zeros((n * k, k), dtype=system.values.dtype)
    places = np.flatnonzero(support.used)
    of_place = support.sources.ravel()[places]
    order = np.argsort(of_place, kind="stable")
    places, of_place = places[order], of_place[order]
    starts = np.flatnonzero(np.diff(of_place, prepend=-1))
    spread = np.zeros(len(system.offsets) - 1, dtype=system.values.dtype)
    for begin, end in pairwise([*starts.tolist(), len(places)]):
        columns, values = system.row(int(of_place[begin]))
        spread[columns] = values
        some = places[begin:end]
        matrices[some] = spread[support.sources[some // k]]
        spread[columns] = 0.0
    matrices = matrices.reshape(n, k, k)
    matrices *= support.used[:, None, :]
    return matrices


def _parts(length: int, size: int) -> Iterator[slice]:
    for begin in range(0, length, size):
        yield slice(begin, min(begin + size, length))


COUNTS, SCALES, SOURCES, LEVELS = COMPACT = ("counts", "scales", "sources", "levels")
_LEVELS = 127
_SHORT = 1 << 16  # sources that have numbers of 16 bits
_AT_ONCE = 1 << 22  # products that are added at once


class Neighbours:
    """Sparse weights, item by item, and the scores they give.

    A source is a place of a memory: channel c of item i is source i · channels + c, so sources keep their
    numbers when items are added. There are two forms of such a model:

        solved    `neighbours` and `weights` [items, k]: item j has the weights weights[j] from the sources
                  neighbours[j]; 0 fills up items with fewer
        compact   `counts` and `scales` [items], then `sources` and `levels` of one item after the other:
                  item j has counts[j] sources, and a weight is a level of 8 bits times scales[j]
    """

    def __init__(self, counts: Tensor, sources: Tensor, values: Tensor, channels: int) -> None:
        """Raise `ValueError` if a source does not exist."""
        self.n_items, self.channels = len(counts), channels
        n_sources = self.n_items * channels
        if len(sources) and not 0 <= int(sources.min()) <= int(sources.max()) < n_sources:
            raise ValueError("weights of items that do not exist")
        self.counts, self.sources, self.values = counts, sources, values

    @classmethod
    def of(cls, shared: Params, channels: int, dtype: torch.dtype | None = None) -> Neighbours | None:
        """The weights in a model's shared tensors; None if they are a whole matrix.

        Weights of the compact form get the given type.
        """
        if NEIGHBOURS in shared:
            used = shared[WEIGHTS] != 0
            sources = shared[NEIGHBOURS].long()
            cls(used.sum(1), sources.flatten(), shared[WEIGHTS].flatten(), channels)  # checks all of them
            return cls(used.sum(1), sources[used], shared[WEIGHTS][used], channels)
        if LEVELS in shared:
            counts = shared[COUNTS].long()
            scales = shared[SCALES].to(dtype).repeat_interleave(counts)
            return cls(counts, shared[SOURCES].long(), shared[LEVELS] * scales, channels)
        return None

    @classmethod
    def largest(cls, weights: Tensor, channels: int, each: int) -> Neighbours:
        """The largest weights of a whole matrix [channels · items, items], `each` per item on average."""
        n_items = weights.shape[1]
        table = weights.view(channels, n_items, n_items).permute(2, 1, 0).reshape(n_items, -1)
        used = _largest(table.flatten(), each * n_items).view(table.shape)
        return cls(used.sum(1), used.nonzero()[:, 1], table[used], channels)

    def compact(self, each: int) -> Params:
        """The compact form, of the largest weights, at most `each` per item on average."""
        kept = _largest(self.values, each * self.n_items)
        items = torch.arange(self.n_items).repeat_interleave(self.counts)[kept]
        values, sources = self.values[kept], self.sources[kept]
        scales = torch.zeros(self.n_items, dtype=values.dtype).scatter_reduce_(0, items, values.abs(), "amax")
        scales = (scales / _LEVELS).float()
        levels = (values / scales[items]).round_().clamp_(-_LEVELS, _LEVELS)
        short = self.n_items * self.channels <= _SHORT
        return {
            COUNTS: torch.bincount(items, minlength=self.n_items).int(),
            SCALES: scales,
            SOURCES: sources.to(torch.uint16 if short else torch.int32),
            LEVELS: levels.to(torch.int8),
        }

    @cached_property
    def _offsets(self) -> Ints:
        return np.concatenate([[0], np.cumsum(self.counts.numpy())])

    def column(self, item: int) -> Tensor:
        """The weights of all sources for one item: [items, channels]."""
        place = slice(self._offsets[item], self._offsets[item + 1])
        found = self.values.new_zeros(self.n_items * self.channels)
        found.index_add_(0, self.sources[place], self.values[place])
        return found.view(self.n_items, self.channels)

    def row(self, source: int) -> Tensor:
        """The weights of one source for all items: [items]."""
        items = torch.arange(self.n_items).repeat_interleave(self.counts)
        found = self.sources == source
        return self.values.new_zeros(self.n_items).index_add_(0, items[found], self.values[found])

    @cached_property
    def _by_source(self) -> tuple[Ints, Tensor, Tensor]:
        """Offsets by source, then items and values, source by source."""
        order = torch.argsort(self.sources, stable=True)
        counts = torch.bincount(self.sources, minlength=self.n_items * self.channels)
        items = torch.arange(self.n_items).repeat_interleave(self.counts)
        return np.concatenate([[0], np.cumsum(counts.numpy())]), items[order], self.values[order]

    def scores(self, rows: Ints, sources: Ints, weights: Tensor, n_rows: int) -> Tensor:
        """Scores [n_rows, items] of sparse memories: the weights of sources, row by row."""
        offsets, items, values = self._by_source
        begins, counts = offsets[sources], offsets[sources + 1] - offsets[sources]
        scores = values.new_zeros(n_rows, self.n_items)
        flat, ends = scores.view(-1), np.cumsum(counts)
        first = 0
        while first < len(sources):
            done = ends[first - 1] if first else 0
            last = max(first + 1, int(np.searchsorted(ends, done + _AT_ONCE, side="right")))
            some = counts[first:last]
            starts = begins[first:last] - (ends[first:last] - some - done)
            places = torch.from_numpy(np.repeat(starts, some) + np.arange(ends[last - 1] - done))
            targets = torch.from_numpy(np.repeat(rows[first:last] * self.n_items, some)) + items[places]
            times = weights[first:last].to(values).repeat_interleave(torch.from_numpy(some))
            flat.scatter_add_(0, targets, values[places].mul_(times))
            first = last
        return scores


def resized(shared: Params, n_items: int, channels: int) -> Params:
    """The solved form for more or fewer items: new ones have no neighbours, and lost ones are nobody's."""
    ids, values = shared[NEIGHBOURS], shared[WEIGHTS]
    held = min(n_items, len(ids))
    more_ids, more = (each.new_zeros(n_items, each.shape[1]) for each in (ids, values))
    more_ids[:held], more[:held] = ids[:held], values[:held]
    lost = more_ids >= n_items * channels
    return {NEIGHBOURS: more_ids.masked_fill(lost, 0), WEIGHTS: more.masked_fill(lost, 0.0)}


def _largest(values: Tensor, count: int) -> Tensor:
    """Which values are among the `count` largest ones by size, zeros never."""
    size, used = values.abs(), values != 0
    if int(used.sum()) <= count:
        return used
    least = float(np.partition(size.numpy(), len(size) - count)[len(size) - count])
    return used & (size >= least)
