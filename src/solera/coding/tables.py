"""Codings of one table [n_items, d]: as it is, int8, product quantisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from solera.coding.uploads import FLOAT, dequantised, quantised
from solera.core.spec import Params

CODES, SCALES, BOOK = "codes", "scales", "book"
_CENTROIDS = 256  # a code is one byte
_HALF = 2  # bytes of a number of a codebook
_LARGEST_HALF = 65504.0
_CHUNK = 2_048  # rows whose distances are in memory at once


class TableCoding(Protocol):
    """A coding of tables. The coded form has tensors with a row for each item, and others."""

    def coded(self, table: Tensor, former: Params, version: int) -> Params:
        """The coded form, given that of the former version, or nothing."""
        ...

    def decoded(self, coded: Params, like: Tensor) -> Tensor:
        """The table as clients see it."""
        ...

    def rows(self, coded: Params) -> tuple[Tensor, ...]:
        """The parts of the coded form that have a row for each item."""
        ...

    def sizes(self, n_items: int, size: int) -> tuple[int, int]:
        """Bytes of a row of `size` numbers, and of the rest."""
        ...


@dataclass(frozen=True)
class Whole:
    """The table itself."""

    def coded(self, table: Tensor, former: Params, version: int) -> Params:
        """The table."""
        return {CODES: table}

    def decoded(self, coded: Params, like: Tensor) -> Tensor:
        """The table."""
        return coded[CODES]

    def rows(self, coded: Params) -> tuple[Tensor, ...]:
        """The table."""
        return (coded[CODES],)

    def sizes(self, n_items: int, size: int) -> tuple[int, int]:
        """Single precision."""
        return FLOAT * size, 0


@dataclass(frozen=True)
class Int8Table:
    """Rows as 8-bit integers with a scale each, rounded to the nearest."""

    def coded(self, table: Tensor, former: Params, version: int) -> Params:
        """Integers and scales."""
        codes, scales = quantised(table.flatten(1))
        return {CODES: codes, SCALES: scales}

    def decoded(self, coded: Params, like: Tensor) -> Tensor:
        """Integers times scales."""
        return dequantised(coded[CODES], coded[SCALES], like.dtype).view(like.shape)

    def rows(self, coded: Params) -> tuple[Tensor, ...]:
        """Integers and scales."""
        return coded[CODES], coded[SCALES]

    def sizes(self, n_items: int, size: int) -> tuple[int, int]:
        """One byte per number, and the scale."""
        return size + FLOAT, 0


@dataclass(frozen=True)
class ProductQuantised:
    """Each row in `parts` pieces, each replaced by the nearest of 256 centroids (Jégou et al., TPAMI 2011).

    The centroids are of half precision. They start from rows of the table. With every version they take one
    step of Lloyd's algorithm from the former ones; a centroid without rows starts from some row again.
    """

    parts: int

    def coded(self, table: Tensor, former: Params, version: int) -> Params:
        """A byte per piece of each row, and the centroids [256, d], piece beside piece."""
        table = table.flatten(1)
        draw = np.random.default_rng(version)
        some = torch.from_numpy(draw.choice(len(table), min(_CENTROIDS, len(table)), replace=False))
        fresh = table[some.to(table.device)]
        book = former[BOOK].to(table) if former else fresh
        pieces = zip(*(each.tensor_split(self.parts, dim=1) for each in (table, book, fresh)), strict=True)
        moved = torch.cat([_moved(*piece) for piece in pieces], dim=1)
        book = moved.clamp_(-_LARGEST_HALF, _LARGEST_HALF).half()
        rounded = book.to(table)
        pairs = zip(*(each.tensor_split(self.parts, dim=1) for each in (table, rounded)), strict=True)
        codes = torch.stack([_nearest(*pair) for pair in pairs if pair[0].shape[1]], dim=1)
        return {CODES: codes.to(torch.uint8), BOOK: book}

    def decoded(self, coded: Params, like: Tensor) -> Tensor:
        """The centroids of each row, piece beside piece."""
        codes = coded[CODES].long()
        books = [book for book in coded[BOOK].to(like).tensor_split(self.parts, dim=1) if book.shape[1]]
        return torch.cat([book[codes[:, i]] for i, book in enumerate(books)], dim=1).view(like.shape)

    def rows(self, coded: Params) -> tuple[Tensor, ...]:
        """The codes."""
        return (coded[CODES],)

    def sizes(self, n_items: int, size: int) -> tuple[int, int]:
        """One byte per piece, and the centroids in half precision."""
        return min(self.parts, size), _HALF * min(_CENTROIDS, n_items) * size


def _nearest(points: Tensor, centroids: Tensor) -> Tensor:
    squares = centroids.square().sum(1)
    found = [
        # NumPy finds the smallest of 256 several times faster than torch.
        torch.addmm(squares, some, centroids.T, alpha=-2).cpu().numpy().argmin(1)
        for some in points.split(_CHUNK)
    ]
    return torch.from_numpy(np.concatenate(found)).to(points.device)


def _moved(points: Tensor, centroids: Tensor, fresh: Tensor) -> Tensor:
    """Each centroid at the mean of its points; at a fresh point if it has none."""
    if not points.shape[1]:
        return centroids
    nearest = _nearest(points, centroids)
    counts = torch.bincount(nearest, minlength=len(centroids)).unsqueeze(1)
    sums = points.new_zeros(centroids.shape, dtype=torch.float64).index_add_(0, nearest, points.double())
    return torch.where(counts > 0, (sums / counts.clamp(min=1)).to(points), fresh)
