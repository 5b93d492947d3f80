"""Wrappers around parts: a scorer made personal, a view whose table is kept or replaced.

A part may have an analytic gradient or use autograd, so every wrapper comes in two kinds.
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
    """The scorer with all its leaves on the client and none of them sent. Unchanged if it has no leaves."""
    if not scorer.leaves:
        return scorer
    return PersonalScorerKnowing(scorer) if scorer_knows(scorer) else PersonalScorer(scorer)


@dataclass(frozen=True)
class PersonalScorer:
    """A scorer whose leaves are all personal."""

    inner: Scorer

    @property
    def label(self) -> str:
        """The inner label, marked as personal unless the scorer already was."""
        own = all(leaf.home is Home.PERSONAL for leaf in self.inner.leaves)
        return self.inner.label if own else f"personal, not {self.inner.label}"

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The inner scorer's leaves, all personal and none of them sent."""
        return tuple(replace(leaf, home=Home.PERSONAL, upload=False) for leaf in self.inner.leaves)

    def score(self, params: Params, items: Tensor) -> Tensor:
        """The inner scorer's scores."""
        return self.inner.score(params, items)


@dataclass(frozen=True)
class PersonalScorerKnowing(PersonalScorer):
    """`PersonalScorer` for a scorer with an analytic gradient."""

    def gradient(self, params: Params, items: Tensor, slope: Tensor, wanted: Collection[str]) -> Params:
        """The inner scorer's gradients."""
        assert scorer_knows(self.inner)
        return self.inner.gradient(params, items, slope, wanted)

    def item_gradient(self, params: Params, slope: Tensor) -> Tensor:
        """The inner scorer's gradient by the item vectors."""
        assert scorer_knows(self.inner)
        return self.inner.item_gradient(params, slope)


@dataclass(frozen=True)
class Around:
    """Base class of a view that wraps another one and shows it a different table as "items"."""

    inner: View

    @property
    def keeps(self) -> tuple[str, ...]:
        """The leaves the inner view keeps."""
        return self.inner.keeps

    def table(self, params: Params) -> Tensor:
        """The table that the inner view sees as "items"."""
        return params[ITEMS]

    def inside(self, params: Params) -> Params:
        """The parameters that are passed to the inner view."""
        return params | {ITEMS: self.table(params)}

    def see(self, params: Params) -> Tensor:
        """The inner view's item vectors."""
        return self.inner.see(self.inside(params))

    def penalty(self, params: Params, batch: Batch, context: RoundContext) -> Tensor:
        """The inner view's penalty, if it has one."""
        if isinstance(self.inner, ViewPenalty):
            return self.inner.penalty(self.inside(params), batch, context)
        return torch.zeros((), dtype=params[ITEMS].dtype, device=params[ITEMS].device)

    def inner_gradient(self, params: Params, slope: Tensor, batch: Batch, context: RoundContext) -> Params:
        """The inner view's gradients. "items" is the gradient by the table it is shown."""
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
        """The inner label, marked as kept."""
        return f"{self.inner.label}, fine-tuned and kept"

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The inner view's leaves."""
        return self.inner.leaves

    @property
    def keeps(self) -> tuple[str, ...]:
        """The leaves the inner view keeps, and the item table."""
        return (*self.inner.keeps, ITEMS)


@dataclass(frozen=True)
class KeptKnowing(Kept):
    """`Kept` for a view with an analytic gradient."""

    def gradient(self, params: Params, slope: Tensor, batch: Batch, context: RoundContext) -> Params:
        """The inner view's gradients."""
        return self.inner_gradient(params, slope, batch, context)
