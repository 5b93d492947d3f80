"""Parts of methods that represent a user by the order of the client's items.

No user vector is stored. A client's memory after some of its items is a decaying sum of their input vectors,
preceded by a 1, so that the first number of an item's vector is the item's bias:

    m_t = [1 ; Σ_{k < t} a^(t−1−k) E[i_k] / √(Σ_{k < t} a^(t−1−k))]        each dimension with one of the a

The root keeps memories of one item and of many items at a similar length.

Every item of a sequence is a prediction target, given the memory before it. The first item is predicted from
its bias alone.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple, TypeGuard

import torch
from torch import Tensor

from solera.core.choices import Scorer, View, ViewPenalty, view_knows
from solera.core.context import Batch, RoundContext
from solera.core.losses import NextItemLoss
from solera.core.method import Method
from solera.core.parts import inner
from solera.core.spec import Home, Init, Leaf, Params
from solera.core.wrappers import ITEMS

INPUTS, MEMORY = "inputs", "memory"


class Targets(NamedTuple):
    """The positions of one step and the data needed to predict the items there.

    `history` [..., L] are the rows of a client's items up to the last of these positions, oldest first,
    padded if the client has fewer; `drawn` [..., n] counts how often each row was drawn as a negative;
    `weights` [..., places] are 1/√n at the n positions where a client has an item, and 0 elsewhere.
    """

    places: range
    history: Tensor
    drawn: Tensor
    weights: Tensor

    @property
    def items(self) -> Tensor:
        """The rows of the items at these positions."""
        return self.history[..., self.places.start :]


@dataclass(frozen=True)
class FadingHistory:
    """⟨memory of the own history, item⟩. No user vector is stored."""

    decays: tuple[float, ...]
    leaves: tuple[Leaf, ...] = ()
    label: str = "own history, fading"

    def score(self, params: Params, items: Tensor) -> Tensor:
        """Scores from the memory that the engine computed from the client's history."""
        return inner(params[MEMORY], items)

    def fading(self, ages: Tensor, counts: Tensor) -> Tensor:
        """Memory weights of items by age and history length, per decay: [decays, ...].

        Items with an age below 0 are in the future and have weight 0.
        """
        most = int(counts.max()) if counts.numel() else 0
        powers = torch.tensor(self.decays, dtype=torch.float64).unsqueeze(-1) ** torch.arange(most + 1)
        roots = powers.cumsum(-1).sqrt_()  # of the sums over 1, 2, … items
        return powers[:, ages.clamp(min=0)].mul_(ages >= 0) / roots[:, (counts - 1).clamp(min=0)]

    def of_dimensions(self, size: int) -> Tensor:
        """The index of the decay that each memory dimension uses."""
        return torch.arange(size) * len(self.decays) // size

    def remember(self, shared: Params, items: Tensor, lengths: Tensor) -> Tensor:
        """Memories [clients, 1 + d] of whole histories, from the shared input vectors of their items."""
        return self.last(shared[INPUTS].index_select(0, items), lengths)

    def last(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        """Memories [clients, 1 + d] of whole histories, given their concatenated inputs [sum(lengths), d]."""
        ends = lengths.cumsum(0)
        ages = ends.repeat_interleave(lengths) - 1 - torch.arange(len(inputs))
        weights = self.fading(ages, lengths.repeat_interleave(lengths))
        faded = inputs * weights[self.of_dimensions(inputs.shape[-1])].T.to(inputs)
        owner = torch.arange(len(lengths)).repeat_interleave(lengths).to(inputs.device)
        memory = inputs.new_zeros(len(lengths), inputs.shape[-1]).index_add_(0, owner, faded)
        return _with_one(memory)

    def before(self, inputs: Tensor, places: range) -> Tensor:
        """Memories [..., places, 1 + d] before each position, from the inputs [..., L, d] of a history."""
        return _with_one(self._through(inputs, self._steps(places, inputs)))

    def gradient(self, slope: Tensor, places: range) -> Tensor:
        """Gradient with respect to the inputs, [..., L, d], given the gradient by the output of `before`."""
        steps = self._steps(places, slope).transpose(-1, -2)
        return self._through(slope[..., 1:], steps)

    def _steps(self, places: range, like: Tensor) -> Tensor:
        """[decays, places, L]: the weight of each item in the memory at each position."""
        counts = torch.arange(places.start, places.stop).unsqueeze(-1)
        return self.fading(counts - 1 - torch.arange(places.stop), counts).to(like)

    def _through(self, values: Tensor, steps: Tensor) -> Tensor:
        sizes = torch.bincount(self.of_dimensions(values.shape[-1]), minlength=len(self.decays)).tolist()
        parts = torch.split(values, sizes, dim=-1)
        return torch.cat([step @ part for step, part in zip(steps, parts, strict=True)], dim=-1)


def _with_one(memory: Tensor) -> Tensor:
    return torch.cat([torch.ones_like(memory[..., :1]), memory], dim=-1)


@dataclass(frozen=True)
class InputsAndItems:
    """Two shared item tables: input vectors, which form a user's memory, and item vectors to score."""

    embedding_size: int
    label: str = "shared as it is"
    keeps: tuple[str, ...] = ()

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The item vectors, which start at zero, and the input vectors."""
        d = self.embedding_size
        return (
            Leaf(ITEMS, (1 + d,), Home.SHARED, Init.ZEROS, per_item=True, upload=True, bias=True),
            Leaf(INPUTS, (d,), Home.SHARED, Init.LINEAR, per_item=True, upload=True, fan_in=d),
        )

    def see(self, params: Params) -> Tensor:
        """The item vectors."""
        return params[ITEMS]

    def gradient(self, params: Params, slope: Tensor, batch: Batch, context: RoundContext) -> Params:
        """The incoming gradient, unchanged."""
        return {ITEMS: slope}


def remembers(scorer: Scorer) -> TypeGuard[FadingHistory]:
    """Whether a scorer needs the client's history."""
    return isinstance(scorer, FadingHistory)


class NextItem(NamedTuple):
    """The loss at every position, and the gradients with respect to the wanted leaves."""

    losses: Tensor  # [..., places]
    gradients: Params


def next_item_gradient(
    method: Method,
    params: Params,
    step: tuple[Targets, Batch],
    context: RoundContext,
    wanted: Collection[str],
    *,
    view: View | None = None,
) -> NextItem:
    """Gradient of the weighted sum of the sampled softmax over all positions, plus the view's penalty."""
    scorer, view, (targets, batch) = method.scorer, view or method.view, step
    assert remembers(scorer)
    where = targets.history.unsqueeze(-1)
    inputs = params[INPUTS].take_along_dim(where, -2)
    memories = scorer.before(inputs, targets.places)
    knows = view_knows(view)
    moving = {} if knows else {n: params[n].detach().requires_grad_() for n in wanted if n != INPUTS}
    items = view.see(params | moving)
    seen = items.detach()
    scores = memories @ seen.transpose(-1, -2)
    assert isinstance(method.loss, NextItemLoss)
    losses, slope = method.loss.value_and_slope(scores, targets.items, targets.drawn)
    slope.mul_(targets.weights.unsqueeze(-1))
    found: Params = {}
    if INPUTS in wanted:
        by_inputs = scorer.gradient(slope @ seen, targets.places)
        found[INPUTS] = torch.zeros_like(params[INPUTS]).scatter_add_(
            -2, where.expand_as(by_inputs), by_inputs
        )
    if len(found) == len(wanted):
        return NextItem(losses, found)
    by_items = slope.transpose(-1, -2) @ memories
    if view_knows(view):
        return NextItem(losses, found | view.gradient(params, by_items, batch, context))
    loss = (items * by_items).sum()
    if isinstance(view, ViewPenalty):
        loss = loss + view.penalty(params | moving, batch, context).sum()
    gradients = torch.autograd.grad(loss, list(moving.values()))
    return NextItem(losses, found | dict(zip(moving, gradients, strict=True)))
