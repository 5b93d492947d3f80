"""The regularizers that PLGC's Table III puts in the place of its own, see `redundancy`.

All compare the batch's rows c_i of the client's table with those g_i of the shared one. A batch gives every
row i a weight w_i, with Σ w_i = 1.

    AU          Σ w_i ‖ĉ_i − ĝ_i‖² + log Σ_ij w_i w_j exp(−2 ‖ĉ_i − ĉ_j‖²)        ĉ = c / ‖c‖
    DuoRec      ½ Σ w_i (log Σ_k w_k exp⟨c_i, g_k⟩ + log Σ_k w_k exp⟨g_i, c_k⟩) − Σ w_i ⟨c_i, g_i⟩
    FedDecorr   ‖K‖²_F / d²,  K the correlations of the columns of C

- AU: Wang & Isola, "Understanding Contrastive Representation Learning through Alignment and Uniformity on the
  Hypersphere" (ICML 2020). The two versions of an item are its rows in both tables. Uniformity is that of the
  client's table, as the other is fixed. Pairs of a row with itself are included, because a batch may hold an
  item several times.
- DuoRec: Qiu et al., "Contrastive Learning for Representation Degeneration Problem in Sequential
  Recommendation" (WSDM 2022): its unsupervised term with dot products and temperature 1, as in the public
  code. The negatives of a row are the rows of the other table. The original also takes those of the same
  table, which would make repeated items their own negatives, and compares sequences with the same target.
- FedDecorr: Shi et al., "Towards Understanding and Mitigating Dimensional Collapse in Heterogeneous Federated
  Learning" (ICLR 2023). The public code multiplies it by the size of the batch.

PLGC does not say how it applies them. Here they replace eRR in Eq. 22, without projector, and β stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor
from torch.nn.functional import normalize

from solera.core.context import Batch
from solera.core.spec import Leaf, Params

Kind = Literal["err", "au", "duorec", "feddecorr"]
_PAIRS = 1 << 23  # pairs of rows compared at once


class Regularizer(Protocol):
    """A penalty between a table in training and a fixed one."""

    @property
    def weight(self) -> float:
        """β; 0 leaves the penalty out."""
        ...

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """Personal leaves that are trained with it."""
        ...

    def loss(self, params: Params, own: Tensor, other: Tensor, batch: Batch) -> Tensor:
        """The weighted penalty of the rows [..., n, d] of a batch, one number per client."""
        ...

    def gradient(self, params: Params, own: str, other: Tensor, batch: Batch) -> Params:
        """Gradients by the leaf `own` and by `leaves`."""
        ...


@dataclass(frozen=True)
class FromTableIII:
    """One of the regularizers that PLGC compares its own with."""

    kind: Kind
    weight: float
    leaves: tuple[Leaf, ...] = ()

    def loss(self, params: Params, own: Tensor, other: Tensor, batch: Batch) -> Tensor:
        """The weighted penalty."""
        return self.weight * _PENALTIES[self.kind](own, other, batch.weights)

    def gradient(self, params: Params, own: str, other: Tensor, batch: Batch) -> Params:
        """The gradient by the leaf `own`, by autograd, for some clients at a time."""
        rows = params[own]
        at_once = max(1, _PAIRS // rows.shape[-2] ** 2)
        parts = zip(*(torch.split(each, at_once) for each in (rows, other, batch.weights)), strict=True)
        return {own: torch.cat([self._slope(*part) for part in parts])}

    def _slope(self, rows: Tensor, other: Tensor, weights: Tensor) -> Tensor:
        with torch.enable_grad():
            moving = rows.detach().requires_grad_()
            loss = self.weight * _PENALTIES[self.kind](moving, other, weights)
            (slope,) = torch.autograd.grad(loss.sum(), moving)
        return slope


def alignment_and_uniformity(own: Tensor, other: Tensor, weights: Tensor) -> Tensor:
    """AU of rows [..., n, d] with weights [..., n]."""
    ours, theirs = normalize(own, dim=-1), normalize(other, dim=-1)
    apart = (weights * (ours - theirs).square().sum(-1)).sum(-1)
    pairs = (4 * (ours @ ours.transpose(-1, -2)) - 4).exp()  # −2 ‖x − y‖² = 4 ⟨x, y⟩ − 4
    return apart + (weights.unsqueeze(-2) @ pairs @ weights.unsqueeze(-1)).squeeze((-1, -2)).log()


def contrast(own: Tensor, other: Tensor, weights: Tensor) -> Tensor:
    """DuoRec's term of rows [..., n, d] with weights [..., n]."""
    alike = own @ other.transpose(-1, -2)
    logs = weights.log()
    from_own = torch.logsumexp(alike + logs.unsqueeze(-2), -1)
    from_other = torch.logsumexp(alike + logs.unsqueeze(-1), -2)
    pairs = alike.diagonal(dim1=-2, dim2=-1)
    return (weights * ((from_own + from_other) / 2 - pairs)).sum(-1)


def decorrelation(own: Tensor, other: Tensor, weights: Tensor) -> Tensor:
    """FedDecorr of rows [..., n, d] with weights [..., n]."""
    by = weights.unsqueeze(-1)
    centred = own - (by * own).sum(-2, keepdim=True)
    scaled = centred / ((by * centred.square()).sum(-2, keepdim=True) + 1e-8).sqrt()
    correlations = (by * scaled).transpose(-1, -2) @ scaled
    return correlations.square().mean((-1, -2))


_PENALTIES = {"au": alignment_and_uniformity, "duorec": contrast, "feddecorr": decorrelation}
