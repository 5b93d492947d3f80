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

Ablations: `fedrap-c` has no personal tables, `fedrap-d` no shared one, `fedrap-no` no norm of C, `fedrap-l2`
the squared L2 norm; curricula are an option.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from solera.core.choices import Move, Sgd, Stage
from solera.core.context import Batch, MethodConfig, RoundContext
from solera.core.fading import KEPT, FadingMean, fading
from solera.core.losses import BinaryCrossEntropy
from solera.core.method import Method
from solera.core.parts import ItemTable, Mean, Nothing, PersonalLinear
from solera.core.schedule import Schedule, Scheduled
from solera.core.spec import Home, Leaf, Params

Norm = Literal["l1", "l2", "none", "soft"]


class FedRAPOneTableConfig(MethodConfig):
    """Options of the ablations with one table. Defaults: the public code's command for MovieLens-100K."""

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


class FedRAPOneNormConfig(FedRAPOneTableConfig):
    """Options of the ablations with a fixed norm of C. Defaults: penalties under which tables do not grow."""

    independence: float = Field(
        default=1e-3, ge=0, description="v1: full weight of −‖D − C‖²; above 0.01 tables grow"
    )
    sparsity: float = Field(default=1e-3, ge=0, description="v2: full weight of the norm of C")
    curriculum: Literal["tanh", "sin", "square", "frac", "fixed"] = Field(
        default="tanh", description="how both weights change with the round"
    )

    def resolve(self, round_: int) -> dict[str, float]:
        """The values in a round, with both penalty weights scaled by the curriculum."""
        hyper = super().resolve(round_)
        share = _CURRICULA[self.curriculum](round_ + 1)
        return hyper | {name: hyper[name] * share for name in ("independence", "sparsity")}


class FedRAPConfig(FedRAPOneNormConfig):
    """Options including the norm of C."""

    norm: Norm = Field(default="l1", description="norm of C: l1, l2 (squared), none, or soft (thresholding)")


_CURRICULA: dict[str, Callable[[int], float]] = {
    "tanh": lambda a: math.tanh(a / 10),
    "sin": lambda a: math.sin(a / 10),
    "square": lambda a: float(a // 10 % 2),
    "frac": lambda a: 1 / (a + 1),
    "fixed": lambda a: 1.0,
}


@dataclass(frozen=True)
class Additive:
    """The sum of a shared and a personal table, with one penalty for independence and one for sparsity."""

    embedding_size: int
    norm: Norm = "l1"
    label: str = "shared + personal table"
    keeps: tuple[str, ...] = ()

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """C and D."""
        shape = (self.embedding_size,)
        return (
            Leaf("items", shape, Home.SHARED, per_item=True, upload=True),
            Leaf("own", shape, Home.PERSONAL, per_item=True),
        )

    def see(self, params: Params) -> Tensor:
        """C + D."""
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
class ScorerAndTables:
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


def fedrap(config: FedRAPConfig) -> Method:
    """Build FedRAP: personal linear × additive × joint × mean."""
    return _additive("fedrap", "Li et al. 2024", config, config.norm)


def _decaying(method: Method, config: FedRAPOneTableConfig) -> Method:
    """The method, with the weight decay on all rows if that is asked for."""
    if config.decay == "touched":
        return method
    assert isinstance(method.update, ScorerAndTables)
    mean = FadingMean(method.aggregate) if isinstance(method.aggregate, Mean) else method.aggregate
    return replace(
        method, view=fading(method.view), update=replace(method.update, fading=True), aggregate=mean
    )


def fedrap_no(config: FedRAPOneNormConfig) -> Method:
    """The ablation without a norm of C."""
    return _additive("fedrap-no", "Li et al. 2024, ablation", config, "none")


def fedrap_l2(config: FedRAPOneNormConfig) -> Method:
    """The ablation with the squared L2 norm of C."""
    return _additive("fedrap-l2", "Li et al. 2024, ablation", config, "l2")


def _additive(name: str, paper: str, config: FedRAPOneNormConfig, norm: Norm) -> Method:
    method = Method(
        name=name,
        paper=paper,
        config=config,
        scorer=PersonalLinear(config.embedding_size),
        view=Additive(config.embedding_size, norm),
        loss=BinaryCrossEntropy(),
        update=ScorerAndTables(("items", "own"), norm == "soft"),
        aggregate=Mean(),
    )
    return _decaying(method, config)


def fedrap_c(config: FedRAPOneTableConfig) -> Method:
    """The ablation without personal tables: C alone."""
    method = Method(
        name="fedrap-c",
        paper="Li et al. 2024, ablation",
        config=config,
        scorer=PersonalLinear(config.embedding_size),
        view=ItemTable(config.embedding_size),
        loss=BinaryCrossEntropy(),
        update=ScorerAndTables(("items",)),
        aggregate=Mean(),
    )
    return _decaying(method, config)


def fedrap_d(config: FedRAPOneTableConfig) -> Method:
    """The ablation without a shared table: D alone, so nothing is learned from others."""
    method = Method(
        name="fedrap-d",
        paper="Li et al. 2024, ablation",
        config=config,
        scorer=PersonalLinear(config.embedding_size),
        view=ItemTable(config.embedding_size, home=Home.PERSONAL),
        loss=BinaryCrossEntropy(),
        update=ScorerAndTables(("items",)),
        aggregate=Nothing(),
    )
    return _decaying(method, config)
