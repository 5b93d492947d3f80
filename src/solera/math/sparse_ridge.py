"""Ridge regressions, each on the few sources that say most about its target.

For every target j the weights b minimise ‖s b − y_j‖² + reg ‖b‖² over b that are zero outside a support N:

    (S[N, N] + reg · I) b = T[N, j]

with S = Σ s sᵀ and T = Σ s yᵀ. Both are sparse, and S is symmetric: only its upper half is held. The support
has the k sources with the largest T_ij / S_ii^p, a co-occurrence normalised by how common the source is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

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
            found = torch.cholesky_solve(right, torch.linalg.cholesky(left, upper=True), upper=True)
            weights[low:high][some] = found.squeeze(2)
    return ids, weights


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
