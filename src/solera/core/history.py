"""A user known by its own history alone: parts of methods that learn from the order of a client's items.

No user vector is stored. What a client remembers after some of its items is a fading sum of their inputs,
and a 1 in front of it, so that the first number of an item's vector is the item's bias:

    m_t = [1 ; Σ_{k < t} a^(t−1−k) E[i_k] / √(Σ_{k < t} a^(t−1−k))]        each dimension with one of the a

The root keeps memories of one item and of many at a similar length.

Every item of a sequence is a target, found by what is remembered before it; the first one by its bias alone.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple, TypeGuard

import torch
from torch import Tensor

from solera.core.choices import NextItemLoss, Scorer, View, ViewPenalty, view_knows
from solera.core.context import Batch, RoundContext
from solera.core.method import Method
from solera.core.parts import inner
from solera.core.spec import Home, Init, Leaf, Params
from solera.core.wrappers import ITEMS

INPUTS, MEMORY = "inputs", "memory"


class Targets(NamedTuple):
    """The places of one step, and what it takes to predict the items that stand there.

    `history` [..., L] are the rows of a client's items up to the last of these places, oldest first, as far
    as it has any; `drawn` [..., n] says how often each row was drawn as a negative; `weights` [...,
    places] are 1/√n at the n places where a client has an item, and 0 where it has none left.
    """

    places: range
    history: Tensor
    drawn: Tensor
    weights: Tensor

    @property
    def items(self) -> Tensor:
        """The rows of the items at these places."""
        return self.history[..., self.places.start :]


@dataclass(frozen=True)
class FadingHistory:
    """⟨what is remembered of the own history, item⟩, of which nothing is stored."""

    decays: tuple[float, ...]
    leaves: tuple[Leaf, ...] = ()
    label: str = "own history, fading"

    def score(self, params: Params, items: Tensor) -> Tensor:
        """Of the memory that the engine has made of the client's history."""
        return inner(params[MEMORY], items)

    def fading(self, ages: Tensor, counts: Tensor) -> Tensor:
        """How strongly items of these ages are remembered, of so many in all, per decay: [decays, ...].

        Nothing is remembered of what is yet to come: below age 0.
        """
        most = int(counts.max()) if counts.numel() else 0
        powers = torch.tensor(self.decays, dtype=torch.float64).unsqueeze(-1) ** torch.arange(most + 1)
        roots = powers.cumsum(-1).sqrt_()  # of the sums for 1, 2, … items
        return powers[:, ages.clamp(min=0)].mul_(ages >= 0) / roots[:, (counts - 1).clamp(min=0)]

    def of_dimensions(self, size: int) -> Tensor:
        """Which decay each of the memory's dimensions has."""
        return torch.arange(size) * len(self.decays) // size

    def last(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        """Memories [clients, 1 + d] of whole histories, given their inputs [sum(lengths), d] in a row."""
        ends = lengths.cumsum(0)
        ages = ends.repeat_interleave(lengths) - 1 - torch.arange(len(inputs))
        weights = self.fading(ages, lengths.repeat_interleave(lengths))
        faded = inputs * weights[self.of_dimensions(inputs.shape[-1])].T.to(inputs)
        owner = torch.arange(len(lengths)).repeat_interleave(lengths).to(inputs.device)
        memory = inputs.new_zeros(len(lengths), inputs.shape[-1]).index_add_(0, owner, faded)
        return _with_one(memory)

    def before(self, inputs: Tensor, places: range) -> Tensor:
        """Memories [..., places, 1 + d] before each place, from the inputs [..., L, d] of a history."""
        return _with_one(self._through(inputs, self._steps(places, inputs)))

    def gradient(self, slope: Tensor, places: range) -> Tensor:
        """By the inputs, [..., L, d], from the slope by what `before` gives."""
        steps = self._steps(places, slope).transpose(-1, -2)
        return self._through(slope[..., 1:], steps)

    def _steps(self, places: range, like: Tensor) -> Tensor:
        """[decays, places, L]: what is left at a place of each item."""
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
    """Two shared tables: what an item says about its user, and the vector by which it is found."""

    embedding_size: int
    label: str = "shared as it is"
    keeps: tuple[str, ...] = ()

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The items, which start at zero, and the inputs."""
        d = self.embedding_size
        return (
            Leaf(ITEMS, (1 + d,), Home.SHARED, Init.ZEROS, per_item=True, upload=True),
            Leaf(INPUTS, (d,), Home.SHARED, Init.LINEAR, per_item=True, upload=True, fan_in=d),
        )

    def see(self, params: Params) -> Tensor:
        """The items."""
        return params[ITEMS]

    def gradient(self, params: Params, slope: Tensor, batch: Batch, context: RoundContext) -> Params:
        """The slope as it comes."""
        return {ITEMS: slope}


def remembers(scorer: Scorer) -> TypeGuard[FadingHistory]:
    """Whether a scorer needs the client's history."""
    return isinstance(scorer, FadingHistory)


class NextItem(NamedTuple):
    """The loss of every place, and the gradients by the wanted leaves."""

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
    """Of the weighted sum over the places of the sampled softmax, and of the view's penalty."""
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
