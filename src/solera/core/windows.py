"""Parts of methods whose clients send one gradient a round: of the loss over a window of their own history.

A window is at most `max_length` + 1 items that follow one another. Each is predicted from those before it in
the window, the first from nothing. Half of the windows of a longer history are the latest one, the others
begin anywhere.

A client's gradient is that of the mean loss over its window. Weighted by the numbers of items in windows, the
mean over the clients of a round is the gradient of a mini-batch with one row per client.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeGuard, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from solera.core.arrays import Ints
from solera.core.choices import Move, Scorer, Sgd, Stage
from solera.core.context import RoundContext
from solera.core.next_item_losses import cross_entropy
from solera.core.randomness import Bits, Purpose, below, uniform
from solera.core.spec import Params

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
        return cross_entropy(states, items, targets, weights, negatives)


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
