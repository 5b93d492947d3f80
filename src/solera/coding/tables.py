"""Codings of one table [n_items, d]: as it is, int8, product quantisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from solera.coding.uploads import FLOAT, dequantised, quantised
from solera.core.spec import Leaf, Params

CODES, SCALES, BOOK, BIASES = "codes", "scales", "book", "biases"
_CENTROIDS = 256  # a code is one byte
_HALF = 2  # bytes of a number in half precision
_LARGEST_HALF = 65504.0
_CHUNK = 2_048  # rows whose distances are in memory at once


class TableCoding(Protocol):
    """A coding of tables. The coded form has tensors with a row for each item, and others."""

    def coded(self, leaf: Leaf, table: Tensor, former: Params, version: int) -> Params:
        """The coded form, given that of the former version, or nothing."""
        ...

    def decoded(self, coded: Params, like: Tensor) -> Tensor:
        """The table as clients see it."""
        ...

    def rows(self, coded: Params) -> tuple[Tensor, ...]:
        """The parts of the coded form that have a row for each item."""
        ...

    def sizes(self, leaf: Leaf, n_items: int) -> tuple[int, int]:
        """Bytes of a row, and of all that is not a row."""
        ...


@dataclass(frozen=True)
class Whole:
    """The table itself."""

    def coded(self, leaf: Leaf, table: Tensor, former: Params, version: int) -> Params:
        """The table."""
        return {CODES: table}

    def decoded(self, coded: Params, like: Tensor) -> Tensor:
        """The table."""
        return coded[CODES]

    def rows(self, coded: Params) -> tuple[Tensor, ...]:
        """The table."""
        return (coded[CODES],)

    def sizes(self, leaf: Leaf, n_items: int) -> tuple[int, int]:
        """Single precision."""
        return FLOAT * leaf.size, 0


@dataclass(frozen=True)
class Int8Table:
    """Rows as 8-bit integers with a scale each, rounded to the nearest."""

    def coded(self, leaf: Leaf, table: Tensor, former: Params, version: int) -> Params:
        """Integers and scales."""
        codes, scales = quantised(table.flatten(1))
        return {CODES: codes, SCALES: scales}

    def decoded(self, coded: Params, like: Tensor) -> Tensor:
        """Integers times scales."""
        return dequantised(coded[CODES], coded[SCALES], like.dtype).view(like.shape)

    def rows(self, coded: Params) -> tuple[Tensor, ...]:
        """Integers and scales."""
        return coded[CODES], coded[SCALES]

    def sizes(self, leaf: Leaf, n_items: int) -> tuple[int, int]:
        """One byte per number, and the scale."""
        return leaf.size + FLOAT, 0


@dataclass(frozen=True)
class _Quantised:
    """Each row as one-byte numbers of centroids, which k-means finds.

    A row takes `length` bytes. An item's bias is not quantised: it takes two of them, in half precision,
    because a small error in it moves an item past many others. Centroids start from rows of the table. With
    every version they take one step of Lloyd's algorithm from the former ones; a centroid without rows starts
    from some row again.
    """

    length: int

    def coded(self, leaf: Leaf, table: Tensor, former: Params, version: int) -> Params:
        """Codes [n_items, codes], centroids, and biases."""
        table = table.flatten(1)
        biases = {BIASES: _half(table[:, :1])} if leaf.bias else {}
        table = table[:, 1:] if leaf.bias else table
        draw = np.random.default_rng(version)
        some = torch.from_numpy(draw.choice(len(table), min(_CENTROIDS, len(table)), replace=False))
        codes, book = self._fitted(table, self._codes(leaf), former.get(BOOK), some.to(table.device))
        return {CODES: codes.to(torch.uint8), BOOK: book} | biases

    def decoded(self, coded: Params, like: Tensor) -> Tensor:
        """Biases, and what the centroids of each row say."""
        biases = [coded[BIASES].to(like)] if BIASES in coded else []
        return torch.cat([*biases, self._looked_up(coded[CODES].long(), coded[BOOK], like)], 1).view(
            like.shape
        )

    def rows(self, coded: Params) -> tuple[Tensor, ...]:
        """Codes and biases."""
        return tuple(coded[name] for name in (CODES, BIASES) if name in coded)

    def sizes(self, leaf: Leaf, n_items: int) -> tuple[int, int]:
        """One byte per code, two for the bias, and the centroids."""
        numbers = min(_CENTROIDS, n_items) * (leaf.size - leaf.bias)
        return self._codes(leaf) + _HALF * leaf.bias, self._book_bytes(leaf, numbers)

    def _codes(self, leaf: Leaf) -> int:
        return max(1, self.length - _HALF * leaf.bias)

    def _fitted(
        self, table: Tensor, codes: int, former: Tensor | None, some: Tensor
    ) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def _looked_up(self, codes: Tensor, book: Tensor, like: Tensor) -> Tensor:
        raise NotImplementedError

    def _book_bytes(self, leaf: Leaf, numbers: int) -> int:
        raise NotImplementedError


class ProductQuantised(_Quantised):
    """Each row in pieces, each replaced by the nearest of 256 centroids (Jégou et al., TPAMI 2011)."""

    def _codes(self, leaf: Leaf) -> int:
        return min(super()._codes(leaf), leaf.size - leaf.bias)

    def _fitted(
        self, table: Tensor, codes: int, former: Tensor | None, some: Tensor
    ) -> tuple[Tensor, Tensor]:
        fresh = table[some]
        book = fresh if former is None else former.to(table)
        pieces = zip(*(each.tensor_split(codes, dim=1) for each in (table, book, fresh)), strict=True)
        book = _half(torch.cat([_moved(*piece) for piece in pieces], dim=1))
        pairs = zip(*(each.tensor_split(codes, dim=1) for each in (table, book.to(table))), strict=True)
        return torch.stack([_nearest(*pair) for pair in pairs], dim=1), book

    def _looked_up(self, codes: Tensor, book: Tensor, like: Tensor) -> Tensor:
        books = book.to(like).tensor_split(codes.shape[1], dim=1)
        return torch.cat([each[codes[:, piece]] for piece, each in enumerate(books)], dim=1)

    def _book_bytes(self, leaf: Leaf, numbers: int) -> int:
        return _HALF * numbers


class ResidualQuantised(_Quantised):
    """Each row as a sum of centroids, each the nearest to what the former ones leave (Juang and Gray, 1982).

    More exact than pieces where columns are correlated, and a longer codebook: 256 whole rows for every code,
    in int8 with a scale each.
    """

    def _fitted(
        self, table: Tensor, codes: int, former: Tensor | None, some: Tensor
    ) -> tuple[Tensor, Tensor]:
        left, found, books = table, [], []
        for place in range(codes):
            fresh = left[some]
            book = fresh if former is None else former[place].to(table)
            book = dequantised(*quantised(_moved(left, book, fresh)), table.dtype)
            found.append(_nearest(left, book))
            left = left - book[found[-1]]
            books.append(book)
        return torch.stack(found, dim=1), torch.stack(books)

    def _looked_up(self, codes: Tensor, book: Tensor, like: Tensor) -> Tensor:
        return sum(
            (each.to(like)[codes[:, place]] for place, each in enumerate(book)), torch.zeros(()).to(like)
        )

    def _book_bytes(self, leaf: Leaf, numbers: int) -> int:
        return self._codes(leaf) * (numbers + FLOAT * numbers // (leaf.size - leaf.bias))


def _half(values: Tensor) -> Tensor:
    return values.clamp(-_LARGEST_HALF, _LARGEST_HALF).half()


def _nearest(points: Tensor, centroids: Tensor) -> Tensor:
    squares = centroids.square().sum(1)
    found = [
        # NumPy finds the smallest of 256 several times faster than torch.
        torch.addmm(squares, some, centroids.T, alpha=-2).cpu().numpy().argmin(1)
        for some in torch.split(points, _CHUNK)
    ]
    return torch.from_numpy(np.concatenate(found)).to(points.device)


def _moved(points: Tensor, centroids: Tensor, fresh: Tensor) -> Tensor:
    """Each centroid at the mean of its points; at a fresh point if it has none."""
    nearest = _nearest(points, centroids)
    counts = torch.bincount(nearest, minlength=len(centroids)).unsqueeze(1)
    sums = points.new_zeros(centroids.shape, dtype=torch.float64).index_add_(0, nearest, points.double())
    return torch.where(counts > 0, (sums / counts.clamp(min=1)).to(points), fresh)
