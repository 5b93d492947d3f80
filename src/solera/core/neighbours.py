"""Weights of a one-round method that keeps only some neighbours of every item.

Item j has the weights `values[j]` [k] from the sources `ids[j]` [k]. A source is a place of a memory: channel
c of item i is source i · channels + c, so sources keep their numbers when items are added. Weights of 0 fill
up items with fewer neighbours.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from solera.core.arrays import Ints
from solera.core.spec import Params

NEIGHBOURS, WEIGHTS = "neighbours", "weights"
_AT_ONCE = 1 << 22  # products that are added at once


class Neighbours:
    """Sparse weights, and the scores they give."""

    def __init__(self, ids: Tensor, values: Tensor, channels: int) -> None:
        """Raise `ValueError` if a source does not exist."""
        n_items = len(ids)
        if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < n_items * channels:
            raise ValueError("weights of items that do not exist")
        self.ids, self.values, self.channels, self.n_items = ids, values, channels, n_items

    @classmethod
    def of(cls, shared: Params, channels: int) -> Neighbours:
        """The weights in a model's shared tensors."""
        return cls(shared[NEIGHBOURS], shared[WEIGHTS], channels)

    def params(self) -> Params:
        """The shared tensors."""
        return {NEIGHBOURS: self.ids, WEIGHTS: self.values}

    def resized(self, n_items: int) -> Neighbours:
        """The same for more or fewer items: new ones have no neighbours, and lost ones are nobody's."""
        held = min(n_items, self.n_items)
        ids, values = (each.new_zeros(n_items, each.shape[1]) for each in (self.ids, self.values))
        ids[:held], values[:held] = self.ids[:held], self.values[:held]
        lost = ids >= n_items * self.channels
        return Neighbours(ids.masked_fill(lost, 0), values.masked_fill(lost, 0.0), self.channels)

    def column(self, item: int) -> Tensor:
        """The weights of all sources for one item: [items, channels]."""
        found = self.values.new_zeros(self.n_items * self.channels)
        found.index_add_(0, self.ids[item].long(), self.values[item])
        return found.view(self.n_items, self.channels)

    def row(self, source: int) -> Tensor:
        """The weights of one source for all items: [items]."""
        return torch.where(self.ids == source, self.values, 0.0).sum(1)

    @cached_property
    def _by_source(self) -> tuple[Ints, Tensor, Tensor]:
        """Offsets by source, then items and values, source by source."""
        kept = self.values.flatten().nonzero().flatten()
        sources = self.ids.flatten()[kept].long()
        order = torch.argsort(sources, stable=True)
        counts = torch.bincount(sources, minlength=self.n_items * self.channels)
        offsets = np.concatenate([[0], np.cumsum(counts.numpy())])
        kept = kept[order]
        return offsets, kept // self.ids.shape[1], self.values.flatten()[kept]

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
