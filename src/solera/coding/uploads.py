"""Codings of uploads: int8, the largest rows, low rank, and random projection of rows.

All of them are positively homogeneous: the coding of c · x is c times that of x, in as many bytes. So a
client may clip after coding, which bounds what the server decodes.

None of them draws random numbers of a client, and a client's result does not depend on the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from solera.core.arrays import Ints
from solera.core.randomness import Purpose, generator
from solera.core.spec import Leaf
from solera.core.upload import Upload

FLOAT, ROW_ID = 4, 4  # bytes on the wire: float32 values, 32-bit row numbers
_LEVELS = 127  # of int8, on either side of zero


def quantised(values: Tensor) -> tuple[Tensor, Tensor]:
    """Rows [n, m] as int8, and the scale [n] of each row in single precision."""
    scales = (values.abs().amax(1) / _LEVELS).float()
    divisors = torch.where(scales > 0, scales, 1.0).to(values.dtype)
    codes = (values / divisors.unsqueeze(1)).round_().clamp_(-_LEVELS, _LEVELS)
    return codes.to(torch.int8), scales


def dequantised(codes: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    """Rows [n, m] from the output of `quantised`."""
    return codes.to(dtype) * scales.to(dtype).unsqueeze(1)


@dataclass(frozen=True)
class Int8:
    """Every row as 8-bit integers with one scale, rounded to the nearest."""

    def coded(self, upload: Upload, leaves: tuple[Leaf, ...], round_: int) -> Upload:
        """Every number rounded to a multiple of its row's largest / 127."""
        changes = {
            name: dequantised(*quantised(change.flatten(1)), change.dtype).view(change.shape)
            for name, change in upload.changes.items()
        }
        return Upload(upload.rows, upload.row_counts, changes)

    def bytes_per_client(self, sent: Upload, leaves: tuple[Leaf, ...]) -> Ints:
        """One byte per number, and the scales."""
        return _sizes(sent, leaves, lambda leaf: leaf.size + FLOAT)

    def numbers(self, leaf: Leaf) -> int:
        """As many as there are."""
        return leaf.size


@dataclass(frozen=True)
class LargestRows:
    """A share of each client's rows, those of the largest norm over all tables."""

    share: float

    def coded(self, upload: Upload, leaves: tuple[Leaf, ...], round_: int) -> Upload:
        """The upload without the other rows. Of equal rows the one with the lower number comes first."""
        per_item = [leaf.sent_as for leaf in _tables(leaves)]
        if not per_item:
            return upload
        squares = sum(upload.changes[name].double().flatten(1).square().sum(1) for name in per_item)
        assert isinstance(squares, Tensor)
        counts = upload.row_counts.to(squares.device)
        owner = torch.arange(len(counts), device=counts.device).repeat_interleave(counts)
        order = torch.argsort(squares, descending=True, stable=True)
        order = order[torch.argsort(owner[order], stable=True)]  # client after client, largest first
        rank = torch.arange(len(order), device=order.device) - (counts.cumsum(0) - counts)[owner]
        kept_counts = torch.ceil(counts * self.share).long()
        kept = order[rank < kept_counts[owner]].sort().values
        changes = {name: v[kept] if name in per_item else v for name, v in upload.changes.items()}
        return Upload(upload.rows[kept], kept_counts.to(upload.row_counts.device), changes)

    def bytes_per_client(self, sent: Upload, leaves: tuple[Leaf, ...]) -> Ints:
        """Numbers and values of the rows that are left."""
        return sent.bytes_per_client(leaves)

    def numbers(self, leaf: Leaf) -> int:
        """As many as there are."""
        return leaf.size


@dataclass(frozen=True)
class LowRank:
    """The changes X [rows, d] of each table as U Vᵀ of at most this rank, V from the eigenvectors of XᵀX.

    So are those of a network's matrices. A gradient over few places of a history has a low rank anyway.
    """

    rank: int

    def coded(self, upload: Upload, leaves: tuple[Leaf, ...], round_: int) -> Upload:
        """The best approximation of this rank of each client's table."""
        counts = upload.row_counts.tolist()
        changes = dict(upload.changes)
        for leaf in _tables(leaves):
            change = upload.changes[leaf.sent_as]
            parts = torch.split(change.flatten(1).double(), counts)
            factored = [self._factored(part) if self._pays(leaf, len(part)) else part for part in parts]
            changes[leaf.sent_as] = torch.cat(factored).to(change.dtype).view(change.shape)
        for leaf in self._matrices(leaves):
            change = upload.changes[leaf.sent_as]
            factored = [self._factored(part) for part in change.double()]
            changes[leaf.sent_as] = torch.stack(factored).to(change.dtype)
        return Upload(upload.rows, upload.row_counts, changes)

    def _matrices(self, leaves: tuple[Leaf, ...]) -> Iterator[Leaf]:
        """Matrices of a network that are longer than their factors."""
        for leaf in leaves:
            is_matrix = leaf.sent_as and not leaf.per_item and len(leaf.shape) == 2
            if is_matrix and self.rank * sum(leaf.shape) < leaf.size:
                yield leaf

    def _factored(self, rows: Tensor) -> Tensor:
        if not bool(rows.isfinite().all()):
            return rows
        _, vectors = torch.linalg.eigh(rows.T @ rows)
        base: Tensor = vectors[:, -self.rank :]
        return (rows @ base) @ base.T

    def _pays(self, leaf: Leaf, rows: int) -> bool:
        return self.rank * (rows + leaf.size) < rows * leaf.size

    def bytes_per_client(self, sent: Upload, leaves: tuple[Leaf, ...]) -> Ints:
        """The two factors, or the table where that is shorter, and row numbers."""
        total = sent.bytes_per_client(leaves)
        rows = sent.row_counts.cpu().numpy().astype(np.int64)
        for leaf in _tables(leaves):
            total -= FLOAT * np.maximum(0, rows * leaf.size - self.rank * (rows + leaf.size))
        return total - FLOAT * sum(leaf.size - self.rank * sum(leaf.shape) for leaf in self._matrices(leaves))

    def numbers(self, leaf: Leaf) -> int:
        """As many as there are."""
        return leaf.size


@dataclass(frozen=True)
class Projection:
    """Rows x as xᵀR for a public R [d, k] with orthonormal columns, drawn anew in every round.

    The server decodes R Rᵀx. Both are linear, so the server may decode a sum instead: this is the only coding
    that works under masks. What R leaves out is a residual, and other rounds have another R.
    """

    share: float
    seed: int

    def coded(self, upload: Upload, leaves: tuple[Leaf, ...], round_: int) -> Upload:
        """Every row projected onto the columns of R."""
        changes = dict(upload.changes)
        for place, leaf in enumerate(_tables(leaves)):
            change = upload.changes[leaf.sent_as]
            base = self._base(leaf, round_, place).to(change)
            changes[leaf.sent_as] = ((change.flatten(1) @ base) @ base.T).view(change.shape)
        return Upload(upload.rows, upload.row_counts, changes)

    def _base(self, leaf: Leaf, round_: int, place: int) -> Tensor:
        drawn = generator(self.seed, Purpose.CODING, round_, place)
        base, _ = np.linalg.qr(drawn.standard_normal((leaf.size, self.numbers(leaf))))
        return torch.from_numpy(base)

    def bytes_per_client(self, sent: Upload, leaves: tuple[Leaf, ...]) -> Ints:
        """The k numbers of each row; R follows from the seed and the round."""
        return _sizes(sent, leaves, lambda leaf: FLOAT * self.numbers(leaf))

    def numbers(self, leaf: Leaf) -> int:
        """k of a row; all of a leaf that is not per item."""
        return max(1, math.ceil(self.share * leaf.size)) if leaf.per_item else leaf.size


def _tables(leaves: tuple[Leaf, ...]) -> Iterator[Leaf]:
    return (leaf for leaf in leaves if leaf.sent_as and leaf.per_item)


def _sizes(sent: Upload, leaves: tuple[Leaf, ...], size: Callable[[Leaf], int]) -> Ints:
    """Bytes of each client's rows with their numbers, and of its other leaves."""
    rows = sent.row_counts.cpu().numpy().astype(np.int64)
    per_row = sum(size(leaf) for leaf in _tables(leaves))
    fixed = sum(size(leaf) for leaf in leaves if leaf.sent_as and not leaf.per_item)
    return rows * (per_row + ROW_ID if per_row else 0) + fixed
