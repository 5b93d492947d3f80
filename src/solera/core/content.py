"""Priors from attributes of items, such as genres and brands, which are public.

Item j has the vector f_j of length 1 with a number for each of its attributes, in proportion to −log(share of
items that have it). F has the vectors as rows.

**Sources.** Weights of an item towards others are a part of its own and parts of its attributes: b = e + F c
with the penalty ‖e‖² + ‖c‖² / ρ. That is a Gaussian prior with covariance I + ρ F Fᵀ: items with the same
attributes say similar things about what comes next. The ridge λ‖B‖² becomes

    λ tr(Bᵀ (I + ρ F Fᵀ)⁻¹ B),    (I + ρ F Fᵀ)⁻¹ = I − F (I / ρ + Fᵀ F)⁻¹ Fᵀ

**Targets.** Items with the same attributes score alike. The neighbours of item j are the `NEIGHBOURS` items
with the largest f_jᵀ f_l, among equal ones those with the most evidence. With these similarities K, of which
those of an item to its neighbours add up to 1, averaged over both directions, and their sums d:

    min_B  Σ_j w_j · ‖b_j − b̂_j‖² + γ Σ_{j < l} K_jl · ‖b_j − b_l‖²        over columns, in any norm
    B = B̂ W (W + γ (diag(d) − K))⁻¹

B̂ is the model without this prior. w_j is the evidence: how much training has of item j. An item with w_j = 0,
in no training row, gets the mean of its neighbours' weights; one with w_j ≫ γ keeps its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from solera.core.arrays import Ints
from solera.core.errors import DataError

NEIGHBOURS = 20
_LEAST = 1e-6  # evidence of an item that has none, so that one without neighbours has a solution: 0
_ROWS = 1024  # items whose neighbours are found at once


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

    def similarities(self, evidence: Tensor) -> Tensor:
        """K [items, items]."""
        vectors = self.vectors()
        n, few = len(vectors), vectors.to_sparse()
        order = torch.empty(n, dtype=torch.float64)
        order[evidence.double().cpu().argsort(stable=True)] = torch.arange(n, dtype=torch.float64)
        found = torch.zeros(n, n, dtype=torch.float64)
        for begin in range(0, n, _ROWS):
            rows = torch.arange(begin, min(begin + _ROWS, n))
            alike = torch.sparse.mm(few, vectors[rows].T.contiguous()).T.contiguous()
            alike[torch.arange(len(rows)), rows] = 0.0
            ranked = torch.where(alike > 0, alike + 1e-6 * order / n, 0.0)
            near = ranked.topk(min(NEIGHBOURS, n - 1), dim=1).indices
            values = alike.gather(1, near)
            values /= values.sum(1, keepdim=True).clamp(min=1e-12)
            found[rows[:, None], near] = values
        return found.add_(found.T.clone()).div_(2)


@dataclass(frozen=True)
class AttributePrior:
    """Both priors: `sources` is ρ, `targets` is γ, and the attributes as far as they are known here."""

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

    def pulled(self, weights: Tensor, evidence: Tensor) -> Tensor:
        """B from B̂ [rows, items] and the evidence for items [items]. B̂ may be overwritten."""
        attributes = self.checked()
        if not self.targets or attributes is None:
            return weights
        known = evidence.double().clamp(min=_LEAST)
        system = attributes.similarities(evidence).to(weights).mul_(-self.targets)
        system.diagonal().sub_(system.sum(1)).add_(known)
        right = weights.mul_(known).T
        return torch.cholesky_solve(right, torch.linalg.cholesky(system)).T


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
