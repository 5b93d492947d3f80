"""PLGC's views: a client's own table and the shared one, mixed by their traces; see `plgc`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from solera.core.context import Batch, RoundContext
from solera.core.local_table import LOCAL, OnLocal
from solera.core.spec import Home, Init, Leaf, Params
from solera.core.wrappers import ITEMS, Around
from solera.methods.fedrap import Additive
from solera.methods.regularizers import Regularizer

ANCHOR, TRACE, LOCAL_TRACE = "items.downloaded", "items.trace", "items.local.trace"
OWN, OWN_TRACE = "own", "own.trace"


@dataclass(frozen=True)
class Mixed(OnLocal):
    """A view of the client's own table and the shared one, mixed by their traces."""

    redundancy: Regularizer

    @property
    def label(self) -> str:
        """The inner label and the mixing."""
        return f"{self.inner.label}, mixed with local by NTK traces"

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The leaves of the view on a local table, both traces, and the projector."""
        return (
            *super().leaves,
            Leaf(TRACE, (1,), Home.SHARED, Init.ZEROS, derived_from=ITEMS),
            Leaf(LOCAL_TRACE, (1,), Home.PERSONAL, Init.ZEROS, derived_from=LOCAL),
            *self.redundancy.leaves,
        )

    def derive(self, tables: Params) -> Params:
        """Σ of all squared entries of each table."""
        return _traces(tables, {ITEMS: TRACE, LOCAL: LOCAL_TRACE})

    def observe(self, before: Params, now: Params) -> Params:
        """The trace before the round, updated with the change of the touched rows."""
        return _updated(before, now, {LOCAL: LOCAL_TRACE})

    def share(self, params: Params) -> Tensor:
        """λ, [..., 1, 1]."""
        return _share(params[LOCAL_TRACE], params[TRACE])

    def merged_by(self, before: Params, after: Params) -> Tensor:
        """1 − λ, as used for serving."""
        return 1 - self.share(after)

    def table(self, params: Params) -> Tensor:
        """The mixed table."""
        return torch.lerp(params[ITEMS], params[LOCAL], self.share(params))

    def penalty(self, params: Params, batch: Batch, context: RoundContext) -> Tensor:
        """The method's own penalty on the mixed table, and redundancy reduction between the two tables."""
        total = super().penalty(params, batch, context)
        if self.redundancy.weight:
            total = total + self.redundancy.loss(params, params[LOCAL], params[ITEMS], batch)
        return total


@dataclass(frozen=True)
class MixedKnowing(Mixed):
    """`Mixed` for a view with an analytic gradient."""

    def gradient(self, params: Params, slope: Tensor, batch: Batch, context: RoundContext) -> Params:
        """λ times the inner view's gradient by the mixed table, and the gradient of redundancy reduction."""
        found = self.inner_gradient(params, slope, batch, context)
        found[LOCAL] = found.pop(ITEMS) * self.share(params)
        if self.redundancy.weight:
            against = self.redundancy.gradient(params, LOCAL, params[ITEMS], batch)
            found[LOCAL] += against.pop(LOCAL)
            found |= against
        return found


def _traces(tables: Params, names: Mapping[str, str]) -> Params:
    return {
        names[name]: table.square().sum((-1, -2)).unsqueeze(-1)
        for name, table in tables.items()
        if name in names
    }


def _updated(before: Params, now: Params, names: Mapping[str, str]) -> Params:
    grown = {trace: now[name].square() - before[name].square() for name, trace in names.items()}
    return {trace: before[trace] + rows.sum((-1, -2)).unsqueeze(-1) for trace, rows in grown.items()}


def _share(own: Tensor, shared: Tensor) -> Tensor:
    own = own.detach()
    return (own / (own + shared.detach())).unsqueeze(-1)


@dataclass(frozen=True)
class MixedAdditive:
    """FedRAP's two tables, mixed by their traces instead of added up."""

    inner: Additive
    redundancy: Regularizer
    keeps: tuple[str, ...] = ()
    label: str = "shared and personal table, mixed by NTK traces"

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """C and D, both traces, and the projector."""
        return (
            *self.inner.leaves,
            Leaf(TRACE, (1,), Home.SHARED, Init.ZEROS, derived_from=ITEMS),
            Leaf(OWN_TRACE, (1,), Home.PERSONAL, Init.ZEROS, derived_from=OWN),
            *self.redundancy.leaves,
        )

    def derive(self, tables: Params) -> Params:
        """Σ of all squared entries of each table."""
        return _traces(tables, {ITEMS: TRACE, OWN: OWN_TRACE})

    def observe(self, before: Params, now: Params) -> Params:
        """The traces before the round, updated with the change of the touched rows of both tables."""
        return _updated(before, now, {ITEMS: TRACE, OWN: OWN_TRACE})

    def share(self, params: Params) -> Tensor:
        """λ, [..., 1, 1]."""
        return _share(params[OWN_TRACE], params[TRACE])

    def merged_by(self, before: Params, after: Params) -> Tensor:
        """1 − λ, as used for serving."""
        return 1 - self.share(after)

    def see(self, params: Params) -> Tensor:
        """λ D + (1 − λ) C."""
        return torch.lerp(params[ITEMS], params[OWN], self.share(params))

    def penalty(self, params: Params, batch: Batch, context: RoundContext) -> Tensor:
        """FedRAP's penalties, and redundancy reduction of D against C, which is a constant to it."""
        total = self.inner.penalty(params, batch, context)
        if self.redundancy.weight:
            total = total + self.redundancy.loss(params, params[OWN], params[ITEMS].detach(), batch)
        return total

    def gradient(self, params: Params, slope: Tensor, batch: Batch, context: RoundContext) -> Params:
        """FedRAP's gradients, with the share of each table in the mix, and those of redundancy reduction."""
        share = self.share(params)
        found = self.inner.gradient(params, torch.zeros_like(slope), batch, context)
        found[ITEMS] = found[ITEMS] + slope * (1 - share)
        found[OWN] = found[OWN] + slope * share
        if self.redundancy.weight:
            against = self.redundancy.gradient(params, OWN, params[ITEMS], batch)
            found[OWN] = found[OWN] + against.pop(OWN)
            found |= against
        return found


@dataclass(frozen=True)
class Anchored(Around):
    """A view with redundancy reduction between the table in training and the downloaded one."""

    redundancy: Regularizer

    @property
    def label(self) -> str:
        """The inner label and the downloaded table."""
        return f"{self.inner.label}, less redundant than downloaded"

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The view's own leaves, a copy of the table, and the projector."""
        (items,) = (leaf for leaf in self.inner.leaves if leaf.name == ITEMS)
        copy = replace(items, name=ANCHOR, upload=False, derived_from=ITEMS)
        return (*self.inner.leaves, copy, *self.redundancy.leaves)

    def derive(self, tables: Params) -> Params:
        """A copy of the table."""
        return {ANCHOR: tables[ITEMS]} if ITEMS in tables else {}

    def observe(self, before: Params, now: Params) -> Params:
        """Nothing: no leaf on the client is derived."""
        return {}

    def penalty(self, params: Params, batch: Batch, context: RoundContext) -> Tensor:
        """The method's own penalty, and redundancy reduction against the downloaded rows."""
        against = self.redundancy.loss(params, params[ITEMS], params[ANCHOR], batch)
        return against + super().penalty(params, batch, context)
