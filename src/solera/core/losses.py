"""The available losses: binary cross-entropy, and sampled softmax over the next item.

Samples of the same item are merged into one with a weight: `weights` are the weights of the samples, and
`positives` the part of them that belongs to positives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from solera.core.context import Batch


@runtime_checkable
class Loss(Protocol):
    """A training loss over the scores of single items, some of which are positives."""

    @property
    def label(self) -> str:
        """A short label for this choice."""
        ...

    def value(self, scores: Tensor, batch: Batch) -> Tensor:
        """The loss of scores [..., n], summed over the last axis: [...]."""
        ...

    def slope(self, scores: Tensor, batch: Batch) -> Tensor:
        """The derivative of the loss by each score, [..., n]."""
        ...


@runtime_checkable
class NextItemLoss(Protocol):
    """A training loss for predicting every item of a sequence from the items before it."""

    @property
    def label(self) -> str:
        """A short label for this choice."""
        ...

    def value_and_slope(self, scores: Tensor, targets: Tensor, drawn: Tensor) -> tuple[Tensor, Tensor]:
        """The loss [..., places] of scores [..., places, n] and its derivative by them. May overwrite them.

        `targets` [..., places] are the rows of the target items, `drawn` [..., n] counts how often each row
        is a negative.
        """
        ...


@runtime_checkable
class WindowLoss(Protocol):
    """A training loss for predicting every item of a window of a history at once; see `core.windows`."""

    @property
    def label(self) -> str:
        """A short label for this choice."""
        ...

    def losses(
        self, states: Tensor, items: Tensor, targets: Tensor, weights: Tensor, negatives: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The weighted sum of the losses of states [n, d], and the single losses [n] without gradients.

        `items` are all item vectors, `targets` [n] the items to predict; no `negatives` stand for all items.
        """
        ...


@dataclass(frozen=True)
class BinaryCrossEntropy:
    """Binary cross-entropy of positives against negatives, with each item scored independently."""

    label: str = "binary cross-entropy"

    def value(self, scores: Tensor, batch: Batch) -> Tensor:
        """The loss of a batch, [...]."""
        return binary_cross_entropy(scores, *batch)

    def slope(self, scores: Tensor, batch: Batch) -> Tensor:
        """The derivative of the loss by each score."""
        return binary_cross_entropy_slope(scores, *batch)


@dataclass(frozen=True)
class SampledSoftmax:
    """Cross-entropy of a sequence's next item against sampled negatives."""

    label: str = "sampled softmax, next item"

    def value_and_slope(self, scores: Tensor, targets: Tensor, drawn: Tensor) -> tuple[Tensor, Tensor]:
        """Loss and derivative at every position of a sequence; see `sampled_softmax`."""
        return sampled_softmax(scores, targets, drawn)


def binary_cross_entropy(logits: Tensor, weights: Tensor, positives: Tensor) -> Tensor:
    """Σ weight · log(1 + e^logit) − positive · logit, over the last axis."""
    # Not softplus: torch cuts off its gradient at 20.
    return -(logsigmoid(-logits) * weights + positives * logits).sum(-1)


def binary_cross_entropy_slope(logits: Tensor, weights: Tensor, positives: Tensor) -> Tensor:
    """The derivative of the binary cross-entropy by each logit, weight · σ(logit) − positive."""
    return torch.sigmoid(logits).mul_(weights).sub_(positives)


def sampled_softmax(scores: Tensor, targets: Tensor, drawn: Tensor) -> tuple[Tensor, Tensor]:
    """−log of the target's share of e^score among it and the negatives, and its derivative by the scores.

    `scores` [..., places, n] of all rows are overwritten.

    `targets` [..., places] are the rows of the target items, `drawn` [..., n] counts how often each row is
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
