"""PLGC's redundancy reduction: aligns the dimensions of two tables and decorrelates different ones.

    eRR  = 1/d Σ_i (1 − H_ii)² + γ/d Σ_{i≠j} H_ij²                                                    (Eq. 19)
    H_ij = ⟨z^C_i, z^G_j⟩ / (‖z^C_i‖ ‖z^G_j‖)  z: columns of the batch's rows of C and G, projected   (Eq. 18)

The paper does not define projector and predictor. Here they are a linear layer with a ReLU and a linear layer
without bias, of size d, personal, the same for both tables. No public code is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from solera.core.context import Batch
from solera.core.spec import Home, Init, Leaf, Params


@dataclass(frozen=True)
class Redundancy:
    """Penalty that aligns equal dimensions of two tables and decorrelates different ones."""

    size: int
    weight: float
    decorrelation: float

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """Projector and predictor, or nothing if the weight is zero."""
        square = (self.size, self.size)
        shapes = {"projector.weight": square, "projector.bias": (self.size,), "predictor.weight": square}
        return tuple(
            Leaf(name, shape, Home.PERSONAL, Init.LINEAR, fan_in=self.size)
            for name, shape in (shapes.items() if self.weight else ())
        )

    def loss(self, params: Params, own: Tensor, other: Tensor, batch: Batch) -> Tensor:
        """β · eRR of the rows [..., n, d] of a batch, one number per client."""
        ours, theirs = self._projected(params, own), self._projected(params, other)
        return self._of_products(_products(ours, theirs, batch), params["predictor.weight"])

    def gradient(self, params: Params, own: str, other: Tensor, batch: Batch) -> Params:
        """Gradients by the leaf `own` and the projector: analytic for large tensors, autograd otherwise."""
        rows, weight = params[own], params["projector.weight"]
        ours, theirs = self._projected(params, rows), self._projected(params, other)
        small = (*_products(ours, theirs, batch), params["predictor.weight"])
        with torch.enable_grad():
            both, first, second, predictor = (matrix.detach().requires_grad_() for matrix in small)
            loss = self._of_products(_Products(both, first, second), predictor)
            by_both, by_first, by_second, by_predictor = torch.autograd.grad(
                loss.sum(), (both, first, second, predictor)
            )
        by_ours = (theirs @ by_both.transpose(-1, -2)).add_(ours @ (by_first + by_first.transpose(-1, -2)))
        by_theirs = (ours @ by_both).add_(theirs @ (by_second + by_second.transpose(-1, -2)))
        weights = batch.weights.unsqueeze(-1)
        for by, projected in ((by_ours, ours), (by_theirs, theirs)):
            by.mul_(weights).mul_(projected.sign_())  # the derivative of the ReLU
        return {
            own: by_ours @ weight,
            "projector.weight": by_ours.transpose(-1, -2) @ rows + by_theirs.transpose(-1, -2) @ other,
            "projector.bias": by_ours.sum(-2) + by_theirs.sum(-2),
            "predictor.weight": by_predictor,
        }

    def _of_products(self, products: _Products, predictor: Tensor) -> Tensor:
        """The loss, from products of the projected columns: the predictor is linear, so these suffice."""

        def predicted(matrix: Tensor) -> Tensor:
            return predictor @ matrix @ predictor.transpose(-1, -2)

        def lengths(matrix: Tensor) -> Tensor:
            return predicted(matrix).diagonal(dim1=-2, dim2=-1).clamp(min=1e-24).sqrt()

        correlation = predicted(products.both) / lengths(products.first).unsqueeze(-1)
        correlation = correlation / lengths(products.second).unsqueeze(-2)
        diagonal = correlation.diagonal(dim1=-2, dim2=-1)
        apart = correlation.square().sum((-1, -2)) - diagonal.square().sum(-1)
        alike = (1 - diagonal).square().sum(-1)
        return (alike + self.decorrelation * apart) * (self.weight / self.size)

    def _projected(self, params: Params, rows: Tensor) -> Tensor:
        weight, bias = params["projector.weight"], params["projector.bias"]
        return torch.relu_((rows @ weight.transpose(-1, -2)).add_(bias.unsqueeze(-2)))


class _Products(NamedTuple):
    """Products [..., d, d] of the columns of two projected tables, with each other and with themselves."""

    both: Tensor
    first: Tensor
    second: Tensor


def _products(one: Tensor, two: Tensor, batch: Batch) -> _Products:
    """Products summed over the rows of the batch by weight. Later steps do not depend on the batch size."""
    weights = batch.weights.unsqueeze(-1)
    first, second = ((table * weights).transpose(-1, -2) for table in (one, two))
    return _Products(first @ two, first @ one, second @ two)
