"""Weight decay on all rows of an item table, without computing with the rows that a client does not touch.

SGD with weight decay on a whole table multiplies a row without a gradient by (1 − rate · reg) in every step,
so by the same factor f as every other such row:

    f_u = Π over the client's steps of (1 − rate · reg)

The leaf `KEPT` is trained like such a row, from 1, and so ends at f_u. The client multiplies the untouched
rows of a personal table by it. Of a shared table C it sends f_u − 1, and its touched rows without the part of
the change that is due to fading. The mean of the clients' tables is then

    C ← C · mean f_u + mean over the clients of the rows they sent, zero elsewhere
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from solera.core.choices import View, view_knows
from solera.core.context import Batch, RoundContext
from solera.core.parts import Mean
from solera.core.spec import Home, Init, Leaf, Params
from solera.core.upload import Totals
from solera.core.wrappers import Around

KEPT = "items.kept"


def fading(view: View) -> View:
    """The view with item tables of which all rows fade."""
    return FadingKnowing(view) if view_knows(view) else Fading(view)


@dataclass(frozen=True)
class Fading(Around):
    """A view whose item tables fade in all rows."""

    @property
    def label(self) -> str:
        """The inner label."""
        return self.inner.label

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The inner view's leaves, and the factor. It is sent if a table is."""
        tables = [leaf for leaf in self.inner.leaves if leaf.per_item]
        sent = any(leaf.upload for leaf in tables)
        home = Home.SHARED if sent else Home.PERSONAL
        kept = Leaf(KEPT, (1,), home, Init.ONES, upload=sent, fresh=not sent)
        return (
            *(replace(leaf, fades_with=KEPT) if leaf.per_item else leaf for leaf in self.inner.leaves),
            kept,
        )

    def penalty(self, params: Params, batch: Batch, context: RoundContext) -> Tensor:
        """The inner penalty, and nothing of the factor: it has a gradient of zero, so weight decay acts."""
        return super().penalty(params, batch, context) + 0 * params[KEPT].sum(-1)


@dataclass(frozen=True)
class FadingKnowing(Fading):
    """`Fading` for a view with an analytic gradient."""

    def gradient(self, params: Params, slope: Tensor, batch: Batch, context: RoundContext) -> Params:
        """The inner view's gradients, and zero for the factor."""
        found = self.inner_gradient(params, slope, batch, context)
        return found | {KEPT: torch.zeros_like(params[KEPT])}


@dataclass(frozen=True)
class FadingMean:
    """The mean of the clients' tables, of which all rows fade."""

    mean: Mean
    tables: tuple[str, ...] = ("items",)

    @property
    def label(self) -> str:
        """The label of the mean."""
        return self.mean.label

    @property
    def weighted(self) -> bool:
        """As in the mean."""
        return self.mean.weighted

    @property
    def from_sums(self) -> bool:
        """As in the mean."""
        return self.mean.from_sums

    def combine(self, shared: Params, totals: Totals, context: RoundContext) -> Params:
        """The mean of all leaves. Tables fade, and the factor is 1 again."""
        factor = 1 + self.mean.change(totals, KEPT)
        faded = {
            name: (shared[name].double() * factor + self.mean.change(totals, name)).to(shared[name].dtype)
            for name in self.tables
        }
        return self.mean.combine(shared, totals, context) | faded | {KEPT: shared[KEPT]}
