"""PLGC's redundancy reduction: two tables whose dimensions agree one by one, and say different things.

    eRR  = 1/d Σ_i (1 − H_ii)² + γ/d Σ_{i≠j} H_ij²                                                    (Eq. 19)
    H_ij = ⟨z^C_i, z^G_j⟩ / (‖z^C_i‖ ‖z^G_j‖)  z: columns of the batch's rows of C and G, projected   (Eq. 18)

The paper does not say what projector and predictor are: here a linear layer with a ReLU, and a linear layer
without bias, of size d, personal, the same for both tables. No public code of it is known.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from solera.core.context import Batch
from solera.core.spec import Home, Init, Leaf, Params


@dataclass(frozen=True)
class Redundancy:
    """Keeps the dimensions of two tables alike one by one, and apart from each other."""

    size: int
    weight: float
    decorrelation: float

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """Projector and predictor; nothing where the weight is zero."""
        square = (self.size, self.size)
        shapes = {"projector.weight": square, "projector.bias": (self.size,), "predictor.weight": square}
        return tuple(
            Leaf(name, shape, Home.PERSONAL, Init.LINEAR, fan_in=self.size)
            for name, shape in (shapes.items() if self.weight else ())
        )

    def loss(self, params: Params, own: Tensor, other: Tensor, batch: Batch) -> Tensor:
        """β · eRR of the rows [..., n, d] of a batch, one number per client.

        The predictor is linear, so the products of its columns follow from those of its inputs' columns:
        after the projector nothing has the size of the batch any more.
        """
        ours, theirs = self._projected(params, own), self._projected(params, other)
        weights = batch.weights.unsqueeze(-1)
        ours_weighted, theirs_weighted = (
            (ours * weights).transpose(-1, -2),
            (theirs * weights).transpose(-1, -2),
        )
        predictor = params["predictor.weight"]

        def products(one: Tensor, two: Tensor) -> Tensor:
            return predictor @ (one @ two) @ predictor.transpose(-1, -2)

        def lengths(one: Tensor, two: Tensor) -> Tensor:
            squares = products(one, two).diagonal(dim1=-2, dim2=-1)
            return squares.clamp(min=1e-24).sqrt()

        correlation = products(ours_weighted, theirs)
        correlation = correlation / lengths(ours_weighted, ours).unsqueeze(-1)
        correlation = correlation / lengths(theirs_weighted, theirs).unsqueeze(-2)
        diagonal = correlation.diagonal(dim1=-2, dim2=-1)
        apart = correlation.square().sum((-1, -2)) - diagonal.square().sum(-1)
        alike = (1 - diagonal).square().sum(-1)
        return (alike + self.decorrelation * apart) * (self.weight / self.size)

    def gradient(self, params: Params, own: str, other: Tensor, batch: Batch) -> Params:
        """By the leaf `own` and by the projector."""
        names = (own, *(leaf.name for leaf in self.leaves))
        with torch.enable_grad():
            moving = {name: params[name].detach().requires_grad_() for name in names}
            loss = self.loss(params | moving, moving[own], other, batch)
            found = torch.autograd.grad(loss.sum(), list(moving.values()))
        return dict(zip(names, found, strict=True))

    def _projected(self, params: Params, rows: Tensor) -> Tensor:
        weight, bias = params["projector.weight"], params["projector.bias"]
        return torch.relu(rows @ weight.transpose(-1, -2) + bias.unsqueeze(-2))
