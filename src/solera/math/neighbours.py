"""Weights of a one-round method that keeps only some neighbours of every item.

A source is a place of a memory: channel c of item i is source i · channels + c, so sources keep their numbers
when items are added. There are two forms:

    solved      `neighbours` and `weights` [items, k]: item j has the weights weights[j] from the sources
                neighbours[j]; 0 fills up items with fewer
    compact     `counts` and `scales` [items], then `sources` and `levels` of one item after the other:
                item j has counts[j] sources, and a weight is a level of 8 bits times scales[j]
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from solera.core.closed_form import NEIGHBOURS, WEIGHTS
from solera.core.leaf import Params
from solera.core.types import Ints

COUNTS, SCALES, SOURCES, LEVELS = COMPACT = ("counts", "scales", "sources", "levels")
_LEVELS = 127
_SHORT = 1 << 16  # sources that have numbers of 16 bits
_AT_ONCE = 1 << 22  # products that are added at once


class Neighbours:
    """Sparse weights, item by item, and the scores they give."""

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
