"""The losses: binary cross-entropy, which nearly all methods share, and that of the next item of a sequence.

Samples of the same item collapse into one with a weight: `weights` are the weights of the samples, and
`positives` the part of them that belongs to positives.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid


def binary_cross_entropy(logits: Tensor, weights: Tensor, positives: Tensor) -> Tensor:
    """Σ weight · log(1 + e^logit) − positive · logit, over the last axis."""
    # not softplus: torch cuts its gradient off at 20
    return -(logsigmoid(-logits) * weights + positives * logits).sum(-1)


def binary_cross_entropy_slope(logits: Tensor, weights: Tensor, positives: Tensor) -> Tensor:
    """Its derivative by each logit, weight · σ(logit) − positive."""
    return torch.sigmoid(logits).mul_(weights).sub_(positives)


class SampledSoftmax(NamedTuple):
    """−log of the target's share of e^score among itself and the negatives, and its slope by the scores."""

    loss: Tensor  # [..., places]
    slope: Tensor  # [..., places, n]


def sampled_softmax(scores: Tensor, targets: Tensor, drawn: Tensor) -> SampledSoftmax:
    """`scores` [..., places, n] of all rows, which are overwritten.

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
    return SampledSoftmax(loss, slope)
