"""Priors from attributes of items, such as genres and brands, which are public.

Item j has the vector f_j of length 1 with a number for each of its attributes, in proportion to −log(share of
items that have it). F has the vectors as rows.

**Sources.** Weights of an item towards others are a part of its own and parts of its attributes: b = e + F c
with the penalty ‖e‖² + ‖c‖² / ρ. That is a Gaussian prior with covariance I + ρ F Fᵀ: items with the same
attributes say similar things about what comes next. The ridge λ‖B‖² becomes

    λ tr(Bᵀ (I + ρ F Fᵀ)⁻¹ B),    (I + ρ F Fᵀ)⁻¹ = I − F (I / ρ + Fᵀ F)⁻¹ Fᵀ

**Targets.** What comes next is learned for items with the same attributes too: an interaction with item l
counts as τ f_lᵀ f_j of one with item j. The targets Y of the regression become Y (I + τ F Fᵀ), and so

    B ← B (I + τ F Fᵀ)

An item in no training row is scored by its attributes alone: τ Σ_l f_lᵀ f_j times the score of item l.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from solera.core.arrays import Ints
from solera.core.errors import DataError


@dataclass(frozen=True, eq=False)
class ItemAttributes:
    """Attribute numbers of all items: those of item i from `offsets[i]` to `offsets[i + 1]`."""

    offsets: Ints
    values: Ints

    def vectors(self) -> Tensor:
        """F [items, attributes]."""
        n = len(self.offsets) - 1
        rows = np.repeat(np.arange(n), np.diff(self.offsets))
        counts = np.bincount(self.values) if len(self.values) else np.zeros(1)
        rarity = np.log(n / np.maximum(counts, 1))[self.values]
        lengths = np.sqrt(np.bincount(rows, rarity**2, minlength=n))
        found = torch.zeros(n, len(counts), dtype=torch.float64)
        found[rows, self.values] = torch.from_numpy(rarity / np.maximum(lengths, 1e-12)[rows])
        return found


@dataclass(frozen=True)
class AttributePrior:
    """Both priors: `sources` is ρ, `targets` is τ, and the attributes as far as they are known here."""

    sources: float = 0.0
    targets: float = 0.0
    attributes: ItemAttributes | None = None

    def checked(self) -> ItemAttributes | None:
        """The attributes. Raises an error if they are needed and not known."""
        if (self.sources or self.targets) and self.attributes is None:
            raise DataError(
                "source_attributes and target_attributes need attributes of items, which are not known here",
                "use a data set with attributes, such as ml-100k or beauty, or omit these options",
            )
        return self.attributes

    def ridge(self, like: Tensor) -> LowRank | None:
        """(I + ρ F Fᵀ)⁻¹ as I − F A; None if ρ = 0."""
        attributes = self.checked()
        if not self.sources or attributes is None:
            return None
        vectors = attributes.vectors().to(like)
        inner = vectors.T @ vectors
        inner.diagonal().add_(1 / self.sources)
        return LowRank(vectors, torch.cholesky_solve(vectors.T, torch.linalg.cholesky(inner)))

    def spread(self, weights: Tensor) -> Tensor:
        """B (I + τ F Fᵀ). B may be overwritten."""
        attributes = self.checked()
        if not self.targets or attributes is None:
            return weights
        vectors = attributes.vectors().to(weights)
        return weights.addmm_(weights @ vectors, vectors.T, alpha=self.targets)


@dataclass(frozen=True, eq=False)
class LowRank:
    """The matrix I − F A, by its factors."""

    left: Tensor
    right: Tensor

    def add_to(self, system: Tensor, scale: float) -> None:
        """Add it, times `scale`, to every square block on the diagonal of a system."""
        n = len(self.left)
        for begin in range(0, len(system), n):
            block = system[begin : begin + n, begin : begin + n]
            block.addmm_(self.left, self.right, alpha=-scale)
            block.diagonal().add_(scale)

    def after(self, matrix: Tensor) -> Tensor:
        """The product of a matrix with it."""
        return torch.addmm(matrix, matrix @ self.left, self.right, alpha=-1)


NO_PRIOR = AttributePrior()
