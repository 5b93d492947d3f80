"""FedRAP: additive personalization.

Li et al., "Federated Recommendation with Additive Personalization" (ICLR 2024).

    score(u, i) = ⟨w_u, c_i + d_ui⟩ + b_u       C shared, D_u and the scorer personal
    loss        = binary cross-entropy − λ(a) · ‖D_u − C‖² + μ(a) · ‖C‖₁                        (Eq. 3)
    local:      w_u, b_u, C and D_u step together
    server:     C ← mean of the clients' C                                             (Algorithm 1)

λ and μ grow with the round a = 1, 2, … along a curriculum (Section 4.3): tanh(a/10) times their full value.

Symbols: v1 is `independence`, v2 is `sparsity`; η is `learning_rate` for the scorer and
`item_learning_rate` for both tables.

Where paper and public code differ:
- u_i of the paper is a personal linear layer with bias in the code, and also here.
- The code computes the curriculum but never uses it. Here `curriculum` takes effect: "tanh" as in the paper,
  "fixed" as in the code.
- Both norms are means over the samples of a batch and the d coordinates, as in the code; the paper writes
  sums over the whole tables.
- The code takes the gradient of ‖C‖₁. The paper uses soft-thresholding instead, C ← S_θ(C − η ∇) (Eq. 13):
  that is `norm=soft`, with θ = μ(a) after every step.
- The code multiplies its learning rates by 0.95 after every local step and by 0.97 after every round, which
  the paper does not mention. The same is done here, by `step_decay` and the schedules.
- The code's weight decay shrinks all rows of C and D in every step, also those of items that the client does
  not train on: `decay=all-rows`. By default it acts on the rows that a client touches in the round.
- The code stops a client's epochs when its loss changes by less than 1e-4 of itself: `early_stop=1e-4`. There
  the loss includes the penalties, here it does not.

Ablations are options: `tables=shared` (C alone) and `tables=personal` (D alone, so nothing is learned from
others), `norm=none`, `norm=l2` and `curriculum`.

With `decay=all-rows`, weight decay acts on all rows, also on those that a client does not touch.

SGD with weight decay on a whole table multiplies a row without a gradient by (1 − rate · reg) in every step,
so by the same factor f as every other such row:

    f_u = Π over the client's steps of (1 − rate · reg)

The leaf `KEPT` is trained like such a row, from 1, and so ends at f_u. The client multiplies the untouched
rows of a personal table by it. Of a shared table C it sends f_u − 1, and its touched rows without the part of
the change that is due to fading. The mean of the clients' tables is then

    C ← C · mean f_u + mean over the clients of the rows they sent, zero elsewhere
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from solera.core.context import Batch, MethodConfig, RoundContext, Schedule, Scheduled
from solera.core.leaf import Home, Init, Leaf, Params
from solera.core.method import Method
from solera.core.parts import Move, Sgd, Stage, Update, View
from solera.core.upload import Totals
from solera.methods.parts import Around, BinaryCrossEntropy, ItemTable, Mean, Nothing, OfMean, PersonalLinear

KEPT = "items.kept"
Norm = Literal["l1", "l2", "none", "soft"]
Tables = Literal["both", "shared", "personal"]


class FedRAPConfig(MethodConfig):
    """Defaults: the public code's command for MovieLens-100K; penalties under which tables do not grow."""

    learning_rate: Scheduled = Field(
        default=Schedule(start=1e-4, decay=0.97), description="step size of the scorer"
    )
    item_learning_rate: Scheduled = Field(
        default=Schedule(start=1e3, decay=0.97), description="step size of the item tables"
    )
    step_decay: float = Field(
        default=0.95, gt=0, le=1, description="both step sizes fall by it after every local step"
    )
    reg: float = Field(default=1e-6, ge=0, description="L2 penalty on everything that is trained")
    decay: Literal["touched", "all-rows"] = Field(
        default="touched",
        description="whether the L2 penalty acts on a client's touched rows, or on all rows",
    )
    local_epochs: int = Field(default=10, ge=1, description="passes over a client's own data per round")
    batch_size: int = Field(default=2048, ge=1, description="samples per local step")
    early_stop: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="a client stops when its loss changes by less than this share of it",
    )
    independence: float = Field(
        default=1e-3, ge=0, description="v1: full weight of −‖D − C‖²; above 0.01 tables grow"
    )
    sparsity: float = Field(default=1e-3, ge=0, description="v2: full weight of the norm of C")
    curriculum: Literal["tanh", "sin", "square", "frac", "fixed"] = Field(
        default="tanh", description="how both weights change with the round"
    )
    norm: Norm = Field(default="l1", description="norm of C: l1, l2 (squared), none, or soft (thresholding)")
    tables: Tables = Field(
        default="both", description="both tables; or an ablation, with one of them and without penalties"
    )

    def resolve(self, round_: int) -> dict[str, float]:
        """The values in a round, with both penalty weights scaled by the curriculum."""
        hyper = super().resolve(round_)
        share = _CURRICULA[self.curriculum](round_ + 1)
        return hyper | {name: hyper[name] * share for name in ("independence", "sparsity")}


_CURRICULA: dict[str, Callable[[int], float]] = {
    "tanh": lambda a: math.tanh(a / 10),
    "sin": lambda a: math.sin(a / 10),
    "square": lambda a: float(a // 10 % 2),
    "frac": lambda a: 1 / (a + 1),
    "fixed": lambda a: 1.0,
}


@dataclass(frozen=True)
class Additive(View):
    """The sum of a shared and a personal table, with one penalty for independence and one for sparsity."""

    embedding_size: int
    norm: Norm = "l1"
    label: str = "shared + personal table"

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        shape = (self.embedding_size,)
        return (
            Leaf("items", shape, Home.SHARED, per_item=True, upload=True),
            Leaf("own", shape, Home.PERSONAL, per_item=True),
        )

    def see(self, params: Params) -> Tensor:
        return params["items"] + params["own"]

    def penalty(self, params: Params, batch: Batch, context: RoundContext) -> Tensor:
        """−λ · mean (D − C)² + μ · mean |C|, or C², over the samples and coordinates."""
        shared, own = params["items"], params["own"]
        each = -context.hyper["independence"] * (own - shared).square()
        if self.norm in ("l1", "l2"):
            each = each + context.hyper["sparsity"] * (shared.abs() if self.norm == "l1" else shared.square())
        return (each.mean(-1) * batch.weights).sum(-1)

    def gradient(self, params: Params, slope: Tensor, batch: Batch, context: RoundContext) -> Params:
        """The incoming gradient for both tables, plus ± 2λ (D − C) / d and, for C, that of its norm."""
        shared, own = params["items"], params["own"]
        weights = batch.weights.unsqueeze(-1) / self.embedding_size
        apart, push = own - shared, 2 * context.hyper["independence"]
        gradient = torch.addcmul(slope, apart, weights, value=push)
        own_gradient = torch.addcmul(slope, apart, weights, value=-push, out=apart)
        if self.norm == "l1":
            gradient.addcmul_(shared.sign(), weights, value=context.hyper["sparsity"])
        elif self.norm == "l2":
            gradient.addcmul_(shared, weights, value=2 * context.hyper["sparsity"])
        return {"items": gradient, "own": own_gradient}


@dataclass(frozen=True)
class ScorerAndTables(Update):
    """Train everything together, the tables with their own rate and optional soft-thresholding of C."""

    tables: tuple[str, ...]
    threshold: bool = False
    fading: bool = False
    label: str = "all together"

    def stages(self, context: RoundContext) -> tuple[Stage, ...]:
        """One stage with one move and two learning rates."""
        hyper = context.hyper
        scorer = Sgd(hyper["learning_rate"], hyper["reg"], hyper["step_decay"])
        plain = Sgd(hyper["item_learning_rate"], hyper["reg"], hyper["step_decay"])
        tables: tuple[Move, ...] = (Move(self.tables, plain),)
        if self.threshold:
            shrinking = replace(plain, shrink=max(0.0, hyper["sparsity"]))  # a sine can be negative
            tables = tuple(Move((name,), shrinking if name == "items" else plain) for name in self.tables)
        if self.fading:
            tables = (*tables, Move((KEPT,), plain))
        everything = Move(("score.weight", "score.bias"), scorer, tables)
        return (Stage(context.local_epochs, (everything,), stop=hyper["early_stop"]),)


@dataclass(frozen=True)
class Fading(Around):
    """A view whose item tables fade in all rows."""

    @property
    def label(self) -> str:
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

    def gradient(self, params: Params, slope: Tensor, batch: Batch, context: RoundContext) -> Params:
        """The inner view's gradients, and zero for the factor."""
        found = self.inner_gradient(params, slope, batch, context)
        return found | {KEPT: torch.zeros_like(params[KEPT])}


@dataclass(frozen=True)
class FadingMean(OfMean):
    """The mean of the clients' tables, of which all rows fade."""

    tables: tuple[str, ...] = ("items",)

    def combine(self, shared: Params, totals: Totals, context: RoundContext) -> Params:
        """The mean of all leaves. Tables fade, and the factor is 1 again."""
        factor = 1 + self.mean.change(totals, KEPT)
        faded = {
            name: (shared[name].double() * factor + self.mean.change(totals, name)).to(shared[name].dtype)
            for name in self.tables
        }
        return self.mean.combine(shared, totals, context) | faded | {KEPT: shared[KEPT]}


def fedrap(config: FedRAPConfig) -> Method:
    """Build FedRAP: personal linear × additive × joint × mean."""
    d, all_rows = config.embedding_size, config.decay == "all-rows"
    view: View
    if config.tables == "both":
        view = Additive(d, config.norm)
    else:
        view = ItemTable(d, home=Home.SHARED if config.tables == "shared" else Home.PERSONAL)
    names = tuple(leaf.name for leaf in view.leaves)
    soft = config.tables == "both" and config.norm == "soft"
    mean = FadingMean(Mean()) if all_rows else Mean()
    return Method(
        name="fedrap",
        paper="Li et al. 2024",
        config=config,
        scorer=PersonalLinear(d),
        view=Fading(view) if all_rows else view,
        loss=BinaryCrossEntropy(),
        update=ScorerAndTables(names, soft, all_rows),
        aggregate=Nothing() if config.tables == "personal" else mean,
    )
