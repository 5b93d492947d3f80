"""A prior from attributes of items: items with the same attributes score alike.

Attributes such as genres and brands are public. Item j has the vector f_j with the number −log(share of items
that have it) for each of its attributes. Its neighbours are the `NEIGHBOURS` items with the most similar
vectors by cosine, among equally similar ones those with the most evidence. With the similarities K, of which
those of an item to its neighbours add up to 1, averaged over both directions, and their sums d:

    min_B  Σ_j w_j · ‖b_j − b̂_j‖² + γ Σ_{j < l} K_jl · ‖b_j − b_l‖²        in the norm ‖b‖² = bᵀ(S + λI)b
    B = B̂ W (W + γ (diag(d) − K))⁻¹

B̂ = (S + λI)⁻¹ T is the model without the prior. The norm is that of the scores on training memories, with the
ridge, and the solution is the same in any norm. w_j is the evidence: how much training has of item j. An item
with w_j = 0, in no training row, gets the mean of its neighbours' weights; one with w_j ≫ γ keeps its own.
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

    def similarities(self, evidence: Tensor) -> Tensor:
        """K [items, items]."""
        vectors = self._vectors()
        n, across = len(vectors), vectors.to_dense().T.contiguous()
        order = torch.empty(n, dtype=torch.float64)
        order[evidence.double().cpu().argsort(stable=True)] = torch.arange(n, dtype=torch.float64)
        found = torch.zeros(n, n, dtype=torch.float64)
        for begin in range(0, n, _ROWS):
            rows = torch.arange(begin, min(begin + _ROWS, n))
            alike = torch.sparse.mm(vectors.index_select(0, rows), across)
            alike[torch.arange(len(rows)), rows] = 0.0
            ranked = torch.where(alike > 0, alike + 1e-6 * order / n, 0.0)
            near = ranked.topk(min(NEIGHBOURS, n - 1), dim=1).indices
            values = alike.gather(1, near)
            values /= values.sum(1, keepdim=True).clamp(min=1e-12)
            found[rows[:, None], near] = values
        return found.add_(found.T.clone()).div_(2)

    def _vectors(self) -> Tensor:
        """f of all items, of length 1: sparse, [items, attributes]."""
        n = len(self.offsets) - 1
        rows = np.repeat(np.arange(n), np.diff(self.offsets))
        counts = np.bincount(self.values) if len(self.values) else np.zeros(1)
        rarity = np.log(n / np.maximum(counts, 1))[self.values]
        lengths = np.sqrt(np.bincount(rows, rarity**2, minlength=n))
        values = rarity / np.maximum(lengths, 1e-12)[rows]
        places = torch.from_numpy(np.stack([rows, self.values.astype(np.int64)]))
        return torch.sparse_coo_tensor(
            places, torch.from_numpy(values), (n, len(counts)), check_invariants=False
        ).coalesce()


@dataclass(frozen=True)
class AttributePrior:
    """The prior with its weight γ, and the attributes as far as they are known here."""

    weight: float
    attributes: ItemAttributes | None = None

    def checked(self) -> ItemAttributes | None:
        """The attributes. Raises an error if the prior needs them and they are not known."""
        if self.weight and self.attributes is None:
            raise DataError(
                "attribute_prior needs attributes of items, which are not known here",
                "use a data set with attributes, such as ml-100k or beauty, or omit attribute_prior",
            )
        return self.attributes

    def pulled(self, weights: Tensor, evidence: Tensor) -> Tensor:
        """B from B̂ [rows, items] and the evidence for items [items]. B̂ may be overwritten."""
        if not self.weight:
            return weights
        attributes = self.checked()
        assert attributes is not None
        known = evidence.double().clamp(min=_LEAST)
        system = attributes.similarities(evidence).to(weights).mul_(-self.weight)
        system.diagonal().sub_(system.sum(1)).add_(known)
        right = weights.mul_(known).T
        return torch.cholesky_solve(right, torch.linalg.cholesky(system)).T


NO_PRIOR = AttributePrior(0.0)
