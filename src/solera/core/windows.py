"""Parts of methods whose clients send one gradient a round: of the loss over a window of their own history.

A window is at most `max_length` + 1 items that follow one another. Each is predicted from those before it in
the window, the first from nothing. Half of the windows of a longer history are the latest one, the others
begin anywhere.

A client's gradient is that of the mean loss over its window. Weighted by the numbers of training items, the
mean over the clients of a round is the gradient of a mini-batch with one row per client.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeGuard, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from solera.core.arrays import Ints
from solera.core.choices import Move, Scorer, Sgd, Stage
from solera.core.context import RoundContext
from solera.core.randomness import Bits, Purpose, below, uniform
from solera.core.spec import Params

CHUNK = 1_000_000  # logits in memory at once: few enough for the cache of a core
Drop = Callable[[Tensor], Tensor]  # dropout of vectors [clients, length, width]


class Windows(NamedTuple):
    """One window per client: items [clients, length], oldest first, padded at the end."""

    items: Tensor
    lengths: Ints

    @property
    def real(self) -> Tensor:
        """Mask [clients, length] of the items that are no padding."""
        lengths = torch.from_numpy(self.lengths).to(self.items.device)
        return torch.arange(self.items.shape[1], device=self.items.device) < lengths[:, None]


@runtime_checkable
class ReadsWindows(Protocol):
    """A sequence scorer that is trained on windows. All its leaves are shared."""

    @property
    def max_length(self) -> int:
        """Items that are read at once."""
        ...

    def states(self, params: Params, items: Tensor, drop: Drop | None = None) -> Tensor:
        """Memories [clients, length + 1, d] before the first item of [clients, length] and after each."""
        ...


def reads_windows(scorer: Scorer) -> TypeGuard[ReadsWindows]:
    """Whether a scorer is trained on windows."""
    return isinstance(scorer, ReadsWindows)


def begins(lengths: Ints, max_length: int, bits: Bits) -> Ints:
    """Where in their histories clients' windows begin, given two draws each."""
    latest = np.maximum(lengths - max_length - 1, 0)
    first, second = bits.reshape(-1, 2).T
    begin: Ints = np.where(uniform(first) < 0.5, latest, below(second, latest + 1))
    return begin


@dataclass(frozen=True)
class OneGradient:
    """One gradient of everything: a step of size 1 over the own window."""

    leaves: tuple[str, ...]
    label: str = "one gradient"

    def stages(self, context: RoundContext) -> tuple[Stage, ...]:
        """One step."""
        return (Stage(1, (Move(self.leaves, Sgd(1.0)),)),)


@dataclass(frozen=True)
class CatalogueSoftmax:
    """Cross-entropy of the next item against the catalogue.

    Of more than `negatives` items, so many are drawn for a round, the same for all clients. They estimate the
    sum over all other items.
    """

    negatives: int
    label: str = "softmax over the catalogue, next item"

    def drawn(self, context: RoundContext) -> Tensor | None:
        """The negatives of a round, ascending; None stands for all items."""
        if context.n_items <= self.negatives:
            return None
        draw = context.generator(Purpose.NEGATIVES)
        return torch.from_numpy(np.sort(draw.choice(context.n_items, self.negatives, replace=False)))

    def losses(
        self, states: Tensor, items: Tensor, targets: Tensor, weights: Tensor, negatives: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The weighted sum of the losses of states [n, d], and the single losses [n] without gradients."""
        found: tuple[Tensor, Tensor] = _CrossEntropy.apply(states, items, targets, weights, negatives)  # type: ignore[no-untyped-call]
        return found


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


class ClientDropout:
    """Dropout, to 1/65536. Every client has its own draws, whoever else is in the batch."""

    def __init__(self, rate: float, keys: Bits, lengths: Ints) -> None:
        self._least = round(65536 * rate)
        self._lengths = lengths
        self._draws = [np.random.default_rng(key) for key in keys] if rate else []

    def __call__(self, x: Tensor) -> Tensor:
        """Set some of the numbers to zero, and scale the others."""
        if not self._draws:
            return x
        kept = np.zeros(x.shape, dtype=np.bool_)
        for row, draw, length in zip(kept, self._draws, self._lengths, strict=True):
            row[:length] = draw.integers(65536, size=row[:length].shape, dtype=np.uint16) >= self._least
        return x * torch.from_numpy(kept) / (1 - self._least / 65536)
