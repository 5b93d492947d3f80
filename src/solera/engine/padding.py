"""Rows of several clients as one table, padded to the same number of rows."""

from __future__ import annotations

import torch
from torch import Tensor


class Padding:
    """Convert rows of several clients to a table [clients, width], padded with zeros, and back."""

    def __init__(self, counts: Tensor, device: torch.device) -> None:
        width = int(counts.max())
        ends = counts.cumsum(0)
        begin = torch.arange(len(counts)) * width - (ends - counts)
        self._place = (torch.arange(int(ends[-1])) + begin.repeat_interleave(counts)).to(device)
        self._shape = len(counts), width

    def pad(self, rows: Tensor) -> Tensor:
        """Convert [rows, ...] to [clients, width, ...]."""
        shape = rows.shape[1:]
        flat = rows.new_zeros(self._shape[0] * self._shape[1], *shape).index_copy_(0, self._place, rows)
        return flat.view(*self._shape, *shape)

    def unpad(self, table: Tensor) -> Tensor:
        """Convert [clients, width, ...] back to [rows, ...]."""
        return table.flatten(0, 1).index_select(0, self._place)
