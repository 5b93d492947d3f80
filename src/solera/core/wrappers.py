"""A part inside another one: a scorer made personal, a view whose table is kept or replaced.

A part may know its gradient or leave it to autograd, so every wrapper comes in two kinds.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from solera.core.choices import Scorer, View, ViewPenalty, scorer_knows, view_knows
from solera.core.context import Batch, RoundContext
from solera.core.spec import Home, Leaf, Params

ITEMS = "items"


def personal(scorer: Scorer) -> Scorer:
    """The scorer with all its leaves on the client, and nothing of it sent; as it is, if it has none."""
    if not scorer.leaves:
        return scorer
    return PersonalScorerKnowing(scorer) if scorer_knows(scorer) else PersonalScorer(scorer)


@dataclass(frozen=True)
class PersonalScorer:
    """A scorer that every client has for itself."""

    inner: Scorer

    @property
    def label(self) -> str:
        """Personal, if it was not so before."""
        own = all(leaf.home is Home.PERSONAL for leaf in self.inner.leaves)
        return self.inner.label if own else f"personal, not {self.inner.label}"

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The same, none of them sent."""
        return tuple(replace(leaf, home=Home.PERSONAL, upload=False) for leaf in self.inner.leaves)

    def score(self, params: Params, items: Tensor) -> Tensor:
        """As the scorer does."""
        return self.inner.score(params, items)


@dataclass(frozen=True)
class PersonalScorerKnowing(PersonalScorer):
    """The same for a scorer that knows its gradient."""

    def gradient(self, params: Params, items: Tensor, slope: Tensor, wanted: Collection[str]) -> Params:
        """As the scorer says it."""
        assert scorer_knows(self.inner)
        return self.inner.gradient(params, items, slope, wanted)

    def item_gradient(self, params: Params, slope: Tensor) -> Tensor:
        """As the scorer says it."""
        assert scorer_knows(self.inner)
        return self.inner.item_gradient(params, slope)


@dataclass(frozen=True)
class Around:
    """A view around another one, which sees another item table than "items". To be derived from."""

    inner: View

    @property
    def keeps(self) -> tuple[str, ...]:
        """As the inner view does."""
        return self.inner.keeps

    def table(self, params: Params) -> Tensor:
        """What the inner view is to see as "items"."""
        return params[ITEMS]

    def inside(self, params: Params) -> Params:
        """What the inner view is shown."""
        return params | {ITEMS: self.table(params)}

    def see(self, params: Params) -> Tensor:
        """What the inner view makes of the table."""
        return self.inner.see(self.inside(params))

    def penalty(self, params: Params, batch: Batch, context: RoundContext) -> Tensor:
        """The inner view's penalty, if it has one."""
        if isinstance(self.inner, ViewPenalty):
            return self.inner.penalty(self.inside(params), batch, context)
        return torch.zeros((), dtype=params[ITEMS].dtype, device=params[ITEMS].device)

    def inner_gradient(self, params: Params, slope: Tensor, batch: Batch, context: RoundContext) -> Params:
        """The inner view's gradients; "items" is that by the table it is shown."""
        assert view_knows(self.inner)
        return self.inner.gradient(self.inside(params), slope, batch, context)


def kept(view: View) -> View:
    """The view with the trained rows of the shared item table kept on the client."""
    return KeptKnowing(view) if view_knows(view) else Kept(view)


@dataclass(frozen=True)
class Kept(Around):
    """A view whose shared item table is fine-tuned, kept and served."""

    @property
    def label(self) -> str:
        """Kept."""
        return f"{self.inner.label}, fine-tuned and kept"

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The same."""
        return self.inner.leaves

    @property
    def keeps(self) -> tuple[str, ...]:
        """The item table as well."""
        return (*self.inner.keeps, ITEMS)


@dataclass(frozen=True)
class KeptKnowing(Kept):
    """The same for a view that knows its gradient."""

    def gradient(self, params: Params, slope: Tensor, batch: Batch, context: RoundContext) -> Params:
        """The inner view's."""
        return self.inner_gradient(params, slope, batch, context)
