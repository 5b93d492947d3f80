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
    """Cross-entropy of the targets against all items. Logits are computed in chunks and not kept."""
    value: Tensor = CrossEntropy.apply(states, items, targets)  # type: ignore[no-untyped-call]
    return value


def sampled_softmax_loss(states: Tensor, items: Tensor, targets: Tensor, negatives: Tensor) -> Tensor:
    """Cross-entropy of the targets against different negatives, which stand for all other items.

    A target among the negatives is not its own negative. With all items as negatives it is the softmax.
    """
    own, others = _scores(states, items, targets, negatives)
    others = others + math.log(len(items) / len(negatives))
    return (torch.logaddexp(own, others.logsumexp(1)) - own).mean()


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


class CrossEntropy(torch.autograd.Function):
    """Mean of −log softmax(⟨state, E_i⟩)[target]. Logits are used for the gradient and not kept."""

    @staticmethod
    def forward(context: Any, states: Tensor, items: Tensor, targets: Tensor) -> Tensor:
        """The loss. Its gradients are computed at the same time."""
        by_states, by_items = torch.empty_like(states), torch.zeros_like(items)
        total = states.new_zeros(())
        size = max(1, CHUNK // len(items))
        for state, target, by_state in zip(
            *(torch.split(tensor, size) for tensor in (states, targets[:, None], by_states)), strict=True
        ):
            surplus = torch.log_softmax(state @ items.T, 1)
            total -= surplus.gather(1, target).sum()
            surplus.exp_().scatter_add_(1, target, -torch.ones_like(state[:, :1]))
            torch.mm(surplus, items, out=by_state)
            by_items.addmm_(surplus.T, state)
        context.save_for_backward(by_states.div_(len(states)), by_items.div_(len(states)))
        return total / len(states)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        """The gradients computed in `forward`."""
        by_states, by_items = context.saved_tensors
        return gradients[0] * by_states, gradients[0] * by_items, None
