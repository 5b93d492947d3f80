"""Losses of states [n, d] that score all items by ⟨state, E_i⟩ and should score their targets highest.

    softmax  −log softmax(⟨h, E⟩)[target]                                                     over all items
    sampled  the same, with the sum over other items estimated from k negatives and weighed n_items / k
    gbce     −β log σ(⟨h, E_target⟩) − Σ log(1 − σ(⟨h, E_i⟩))                              over k negatives i
             β = α (t (1 − 1/α) + 1/α),   α = k / (n_items − 1)

Each is the mean over the states. softmax and sampled: Klenitskiy & Vasilev, "Turning Dross Into Gold Loss"
(RecSys 2023). gbce: Petrov & Macdonald, "gSASRec" (RecSys 2023), where t = 0 is binary cross-entropy, which
overestimates, and t = 1 makes σ(⟨h, E_i⟩) a probability. Negatives are shared by all states of a step.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding, logsigmoid

CHUNK = 250_000  # logits held in memory at once: few enough for the cache of a core


def softmax_loss(states: Tensor, items: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy of the targets against all items."""
    return cross_entropy(states, items, targets, _means(states))[0]


def sampled_softmax_loss(states: Tensor, items: Tensor, targets: Tensor, negatives: Tensor) -> Tensor:
    """Cross-entropy of the targets against different negatives, which stand for all other items.

    A target among the negatives is not its own negative. With all items as negatives it is the softmax.
    """
    return cross_entropy(states, items, targets, _means(states), negatives)[0]


def cross_entropy(
    states: Tensor, items: Tensor, targets: Tensor, weights: Tensor, negatives: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The weighted sum of the states' losses, and the single losses [n] without gradients.

    The targets are compared with the negatives, or with all items. Logits are made in chunks and not kept.
    """
    apply: Any = _CrossEntropy.apply
    found: tuple[Tensor, Tensor] = apply(states, items, targets, weights, negatives)
    return found


def _means(states: Tensor) -> Tensor:
    return states.new_full((len(states),), 1 / len(states))


def gbce_loss(
    states: Tensor, items: Tensor, targets: Tensor, negatives: Tensor, calibration: float
) -> Tensor:
    """Generalized binary cross-entropy; `calibration` is t."""
    beta = gbce_power(len(negatives), len(items), calibration)
    own, others = _scores(states, items, targets, negatives)
    return -(beta * logsigmoid(own) + logsigmoid(-others).sum(1)).mean()


def gbce_power(negatives: int, n_items: int, calibration: float) -> float:
    """β = α (t (1 − 1/α) + 1/α): the weight of a positive, 1 without calibration and α with all of it."""
    alpha = negatives / (n_items - 1)
    return alpha * (calibration * (1 - 1 / alpha) + 1 / alpha)


def _scores(states: Tensor, items: Tensor, targets: Tensor, negatives: Tensor) -> tuple[Tensor, Tensor]:
    """The scores of targets [n] and of negatives [n, k]; −∞ where a negative is the target."""
    # Read at once: every reading costs a gradient as large as the table.
    rows = embedding(torch.cat([targets, negatives]), items)
    own = (states * rows[: len(targets)]).sum(1)
    others = states @ rows[len(targets) :].T
    return own, others.masked_fill(negatives == targets[:, None], -math.inf)


class _CrossEntropy(torch.autograd.Function):
    """Σ weight · −log softmax(⟨state, E_i⟩)[target]. Logits are used for the gradient and not kept."""

    @staticmethod
    def forward(  # noqa: PLR0917, torch passes them so
        context: Any,
        states: Tensor,
        items: Tensor,
        targets: Tensor,
        weights: Tensor,
        negatives: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """The loss. Its gradients are computed at the same time."""
        others = items if negatives is None else items.index_select(0, negatives)
        by_states, by_others = torch.empty_like(states), torch.zeros_like(others)
        by_items = by_others if negatives is None else torch.zeros_like(items)
        losses = torch.empty_like(weights)
        size = max(1, CHUNK // len(others))
        for begin in range(0, len(states), size):
            part = slice(begin, begin + size)
            state, target, weight = states[part], targets[part, None], weights[part, None]
            if negatives is None:
                slope = torch.log_softmax(state @ others.T, 1)
                losses[part] = -slope.gather(1, target)[:, 0]
                slope.exp_().scatter_add_(1, target, -torch.ones_like(weight)).mul_(weight)
                by_states[part] = slope @ others
            else:
                own_items = items.index_select(0, target[:, 0])
                own = (state * own_items).sum(1, keepdim=True)
                logits = (state @ others.T).add_(math.log(len(items) / len(others)))
                logits.masked_fill_(negatives == target, -math.inf)
                logits = torch.cat([own, logits], 1)
                slope = torch.log_softmax(logits, 1)
                losses[part] = -slope[:, 0]
                slope.exp_()[:, 0] -= 1
                slope.mul_(weight)
                by_own, slope = slope[:, :1], slope[:, 1:]
                by_states[part] = (slope @ others).addcmul_(by_own, own_items)
                by_items.index_add_(0, target[:, 0], by_own * state)
            by_others.addmm_(slope.T, state)
        if negatives is not None:
            by_items.index_add_(0, negatives, by_others)
        context.save_for_backward(by_states, by_items)
        context.mark_non_differentiable(losses)
        return (losses * weights).sum(), losses

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        """The gradients computed in `forward`."""
        by_states, by_items = context.saved_tensors
        return gradients[0] * by_states, gradients[0] * by_items, None, None, None
