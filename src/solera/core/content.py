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

**Cold items.** The prior of targets ranks an item without a training row below those with the same attributes
that have some. Instead its weights can be the mean of those of the m items with the largest f_jᵀ f_l that do,
weighted by it; among equally similar items the more common ones are taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from solera.core.errors import DataError
from solera.core.frozen import Frozen
from solera.core.types import Ints


class ItemAttributes(Protocol):
    """Attribute numbers of all items: those of item i from `offsets[i]` to `offsets[i + 1]`."""

    @property
    def offsets(self) -> Ints:
        """Where each item's attributes begin, and where the last one's end."""
        ...

    @property
    def values(self) -> Ints:
        """The attributes."""
        ...


class AttributeOptions(Frozen):
    """The priors as options of a method or a baseline."""

    source_attributes: float = Field(
        default=0.0, ge=0, description="ρ: how much of an item's weights towards others its attributes share"
    )
    target_attributes: float = Field(
        default=0.0,
        ge=0,
        description="τ: how much of what comes next is learned for items with the same attributes",
    )
    cold_neighbours: int = Field(
        default=0, ge=0, description="m: items that one in no training row is scored like, by attributes"
    )

    @property
    def reads_attributes(self) -> bool:
        """Whether any of them is set."""
        return bool(self.source_attributes or self.target_attributes or self.cold_neighbours)

    def prior(self, attributes: ItemAttributes | None) -> AttributePrior:
        """The priors for these items. Raises an error if they need attributes that are not known."""
        prior = AttributePrior(
            self.source_attributes, self.target_attributes, self.cold_neighbours, attributes
        )
        if self.reads_attributes and attributes is None:
            raise DataError(
                "source_attributes, target_attributes and cold_neighbours need attributes of items, "
                "which are not known here",
                "use a data set with attributes, such as ml-100k or beauty, or omit these options",
            )
        return prior


def vectors_of(attributes: ItemAttributes) -> Tensor:
    """F [items, attributes]."""
    n = len(attributes.offsets) - 1
    rows = np.repeat(np.arange(n), np.diff(attributes.offsets))
    counts = np.bincount(attributes.values) if len(attributes.values) else np.zeros(1)
    rarity = np.log(n / np.maximum(counts, 1))[attributes.values]
    lengths = np.sqrt(np.bincount(rows, rarity**2, minlength=n))
    found = torch.zeros(n, len(counts), dtype=torch.float64)
    found[rows, attributes.values] = torch.from_numpy(rarity / np.maximum(lengths, 1e-12)[rows])
    return found


def _means(vectors: Tensor, cold: Tensor, warm: Tensor, counts: Tensor, most: int) -> Tensor:
    """Weights [warm, cold] of the most similar warm items for every cold one, which add up to 1, or 0."""
    alike = vectors[cold] @ vectors[warm].T
    ranked = torch.where(alike > 0, alike + 1e-6 * counts[warm] / counts.max(), 0.0)
    near = ranked.topk(min(most, len(warm)), dim=1).indices
    values = alike.gather(1, near)
    values /= values.sum(1, keepdim=True).clamp(min=1e-12)
    return torch.zeros_like(alike).scatter_(1, near, values).T


@dataclass(frozen=True)
class AttributePrior:
    """The priors: `sources` is ρ, `targets` is τ, `cold` is m; and the attributes, if they are known."""

    sources: float = 0.0
    targets: float = 0.0
    cold: int = 0
    attributes: ItemAttributes | None = None

    def ridge(self, like: Tensor) -> LowRank | None:
        """(I + ρ F Fᵀ)⁻¹ as I − F A; None if ρ = 0."""
        if not self.sources or self.attributes is None:
            return None
        vectors = vectors_of(self.attributes).to(like)
        inner = vectors.T @ vectors
        inner.diagonal().add_(1 / self.sources)
        return LowRank(vectors, torch.cholesky_solve(vectors.T, torch.linalg.cholesky(inner)))

    def spread(self, weights: Tensor, counts: Tensor) -> Tensor:
        """B (I + τ F Fᵀ), then the means for items without a count. B may be overwritten."""
        if self.attributes is None or not (self.targets or self.cold):
            return weights
        vectors = vectors_of(self.attributes).to(weights)
        if self.targets:
            weights.addmm_(weights @ vectors, vectors.T, alpha=self.targets)
        cold, warm = (counts <= 0).nonzero().squeeze(1), (counts > 0).nonzero().squeeze(1)
        if self.cold and len(cold) and len(warm):
            near = _means(vectors, cold, warm, counts.to(weights), self.cold)
            weights[:, cold] = weights[:, warm] @ near
        return weights


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
