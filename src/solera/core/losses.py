"""The losses that methods choose from: binary cross-entropy, and sampled softmax over the next item.

Samples of the same item collapse into one with a weight: `weights` are the weights of the samples, and
`positives` the part of them that belongs to positives.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from solera.core.context import Batch


@dataclass(frozen=True)
class BinaryCrossEntropy:
    """Binary cross-entropy of positives against negatives, each item by itself."""

    label: str = "binary cross-entropy"

    def value(self, scores: Tensor, batch: Batch) -> Tensor:
        """The loss of a batch, [...]."""
        return binary_cross_entropy(scores, *batch)

    def slope(self, scores: Tensor, batch: Batch) -> Tensor:
        """Its derivative by each score."""
        return binary_cross_entropy_slope(scores, *batch)


@dataclass(frozen=True)
class SampledSoftmax:
    """Cross-entropy of a sequence's next item against sampled negatives."""

    label: str = "sampled softmax, next item"

    def value_and_slope(self, scores: Tensor, targets: Tensor, drawn: Tensor) -> tuple[Tensor, Tensor]:
        """Of every place of a sequence; see `sampled_softmax`."""
        return sampled_softmax(scores, targets, drawn)


def binary_cross_entropy(logits: Tensor, weights: Tensor, positives: Tensor) -> Tensor:
    """Σ weight · log(1 + e^logit) − positive · logit, over the last axis."""
    # not softplus: torch cuts its gradient off at 20
    return -(logsigmoid(-logits) * weights + positives * logits).sum(-1)


def binary_cross_entropy_slope(logits: Tensor, weights: Tensor, positives: Tensor) -> Tensor:
    """Its derivative by each logit, weight · σ(logit) − positive."""
    return torch.sigmoid(logits).mul_(weights).sub_(positives)


def sampled_softmax(scores: Tensor, targets: Tensor, drawn: Tensor) -> tuple[Tensor, Tensor]:
    """−log of the target's share of e^score among itself and the negatives, and its slope by the scores.

    `scores` [..., places, n] of all rows are overwritten.

    `targets` [..., places] are the rows of the places' own items, `drawn` [..., n] says how often each row is
    a negative.
    """
    target = targets.unsqueeze(-1)
    own = scores.gather(-1, target)
    others = scores.add_(drawn.log().unsqueeze(-2))
    top = torch.maximum(own, others.amax(-1, keepdim=True))
    others.sub_(top).exp_()
    share = (own - top).exp_()
    total = others.sum(-1, keepdim=True).add_(share)
    loss = (total.log() + top - own).squeeze(-1)
    slope = others.div_(total).scatter_add_(-1, target, share.div_(total).sub_(1))
    return loss, slope
