"""The loss all methods share.

Samples of the same item collapse into one with a weight: `weights` are the weights of the samples, and
`positives` the part of them that belongs to positives.
"""

from __future__ import annotations

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
