"""PLGC: local and shared table mixed by their NTK traces, and redundancy reduction between them.

Shen et al., "A Model-agnostic Strategy to Mitigate Embedding Degradation in Personalized Federated
Recommendation" (2025), for any method with a shared item table.

    q_i  = λ c_i + (1 − λ) g_i              C the client's own table, which is sent; G the shared one (Eq. 16)
    λ    = tr C Cᵀ / (tr C Cᵀ + tr G Gᵀ)    anew in every epoch; a constant to the gradient           (Eq. 15)
    loss = the method's own on Q + β · eRR(C, G)                                                      (Eq. 22)

The trace is the sum of all squared entries (Eq. 14). A client knows the contribution of its touched rows, so
it updates the trace without reading the others.

FedRAP already has a table of the client's own, D, and trains the shared one, C, on the client. These two are
mixed, λ D + (1 − λ) C, and there is no third table; penalties and upload stay FedRAP's.

eRR aligns the dimensions of two tables and decorrelates different ones:

    eRR  = 1/d Σ_i (1 − H_ii)² + γ/d Σ_{i≠j} H_ij²                                                    (Eq. 19)
    H_ij = ⟨z^C_i, z^G_j⟩ / (‖z^C_i‖ ‖z^G_j‖)  z: columns of the batch's rows of C and G, projected   (Eq. 18)

The paper does not define projector and predictor. Here they are a linear layer with a ReLU and a linear layer
without bias, of size d, personal, the same for both tables. No public code is known.

Symbols: β is `redundancy`, γ is `decorrelation`. `plgc` is FedMF with both parts, by SGD with the learning
rates of its public relatives and the weighted mean; `fedmf --plugin plgc` is the same.

Ablations are options: `redundancy=0` has only the mixing, `mixing=false` only the redundancy reduction,
between the table in training and the downloaded one. `regularizer` replaces eRR as in Table III:

All compare the batch's rows c_i of the client's table with those g_i of the shared one. A batch gives every
row i a weight w_i, with Σ w_i = 1.

    AU          Σ w_i ‖ĉ_i − ĝ_i‖² + log Σ_ij w_i w_j exp(−2 ‖ĉ_i − ĉ_j‖²)        ĉ = c / ‖c‖
    DuoRec      ½ Σ w_i (log Σ_k w_k exp⟨c_i, g_k⟩ + log Σ_k w_k exp⟨g_i, c_k⟩) − Σ w_i ⟨c_i, g_i⟩
    FedDecorr   ‖K‖²_F / d²,  K the correlations of the columns of C

- AU: Wang & Isola, "Understanding Contrastive Representation Learning through Alignment and Uniformity on the
  Hypersphere" (ICML 2020). The two versions of an item are its rows in both tables. Uniformity is that of the
  client's table, as the other is fixed. Pairs of a row with itself are included, because a batch may hold an
  item several times.
- DuoRec: Qiu et al., "Contrastive Learning for Representation Degeneration Problem in Sequential
  Recommendation" (WSDM 2022): its unsupervised term with dot products and temperature 1, as in the public
  code. The negatives of a row are the rows of the other table. The original also takes those of the same
  table, which would make repeated items their own negatives, and compares sequences with the same target.
- FedDecorr: Shi et al., "Towards Understanding and Mitigating Dimensional Collapse in Heterogeneous Federated
  Learning" (ICLR 2023). The public code multiplies it by the size of the batch.

PLGC does not say how it applies them. Here they replace eRR in Eq. 22, without projector, and β stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Protocol

import torch
from pydantic import BaseModel, Field
from torch import Tensor
from torch.nn.functional import normalize

from solera.core.context import Batch, MethodConfig, RoundContext, Schedule, Scheduled
from solera.core.errors import ConfigError
from solera.core.leaf import ITEMS, Home, Init, Leaf, Params
from solera.core.method import Method
from solera.core.parts import Move, Sgd, Stage, Update, View
from solera.methods.fedrap import Additive
from solera.methods.parts import (
    LOCAL,
    Around,
    BinaryCrossEntropy,
    Dot,
    ItemTable,
    Mean,
    OnLocal,
    require_shared_table,
)

Kind = Literal["err", "au", "duorec", "feddecorr"]
_PAIRS = 1 << 23  # pairs of rows compared at once


ANCHOR, TRACE, LOCAL_TRACE = "items.downloaded", "items.trace", "items.local.trace"
OWN, OWN_TRACE = "own", "own.trace"


class PLGCPlugConfig(BaseModel):
    """Defaults: within the paper's ranges."""

    redundancy: float = Field(
        default=0.1, ge=0, description="β: weight of redundancy reduction; 0 leaves it out"
    )
    regularizer: Kind = Field(
        default="err", description="what β weighs: redundancy reduction, or another one of Table III"
    )
    decorrelation: float = Field(
        default=0.01, ge=0, description="γ: weight of the correlations between dimensions"
    )
    projector_learning_rate: Scheduled = Field(
        default=Schedule(start=0.1), description="step size of projector and predictor"
    )


class MixingConfig(MethodConfig):
    """Options without redundancy reduction. Defaults: the paper's sizes; tuned rates."""

    learning_rate: Scheduled = Field(
        default=Schedule(start=0.1, decay=0.97), description="step size of user vectors"
    )
    item_learning_rate: Scheduled = Field(
        default=Schedule(start=100, decay=0.97), description="step size of the client's item table"
    )
    step_decay: float = Field(
        default=0.95, gt=0, le=1, description="step sizes fall by it after every local step"
    )
    local_epochs: int = Field(default=10, ge=1, description="passes over a client's own data per round")
    batch_size: int = Field(default=2048, ge=1, description="samples per local step")
    user_start: Literal["normal", "linear"] = Field(
        default="normal", description="user vectors start as N(0, 1), or as the weights of a linear layer"
    )


class PLGCConfig(PLGCPlugConfig, MixingConfig):
    """Options including redundancy reduction."""

    mixing: bool = Field(
        default=True, description="whether tables are mixed; otherwise redundancy reduction alone"
    )


class Regularizer(Protocol):
    """A penalty between a table in training and a fixed one."""

    @property
    def weight(self) -> float:
        """β; 0 leaves the penalty out."""
        ...

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """Personal leaves that are trained with it."""
        ...

    def loss(self, params: Params, own: Tensor, other: Tensor, batch: Batch) -> Tensor:
        """The weighted penalty of the rows [..., n, d] of a batch, one number per client."""
        ...

    def gradient(self, params: Params, own: str, other: Tensor, batch: Batch) -> Params:
        """Gradients by the leaf `own` and by `leaves`."""
        ...


@dataclass(frozen=True)
class FromTableIII:
    """One of the regularizers that PLGC compares its own with."""

    kind: Kind
    weight: float
    leaves: tuple[Leaf, ...] = ()

    def loss(self, params: Params, own: Tensor, other: Tensor, batch: Batch) -> Tensor:
        """The weighted penalty."""
        return self.weight * _PENALTIES[self.kind](own, other, batch.weights)

    def gradient(self, params: Params, own: str, other: Tensor, batch: Batch) -> Params:
        """The gradient by the leaf `own`, by autograd, for some clients at a time."""
        rows = params[own]
        at_once = max(1, _PAIRS // rows.shape[-2] ** 2)
        parts = zip(*(torch.split(each, at_once) for each in (rows, other, batch.weights)), strict=True)
        return {own: torch.cat([self._slope(*part) for part in parts])}

    def _slope(self, rows: Tensor, other: Tensor, weights: Tensor) -> Tensor:
        with torch.enable_grad():
            moving = rows.detach().requires_grad_()
            loss = self.weight * _PENALTIES[self.kind](moving, other, weights)
            (slope,) = torch.autograd.grad(loss.sum(), moving)
        return slope


def alignment_and_uniformity(own: Tensor, other: Tensor, weights: Tensor) -> Tensor:
    """AU of rows [..., n, d] with weights [..., n]."""
    ours, theirs = normalize(own, dim=-1), normalize(other, dim=-1)
    apart = (weights * (ours - theirs).square().sum(-1)).sum(-1)
    pairs = (4 * (ours @ ours.transpose(-1, -2)) - 4).exp()  # −2 ‖x − y‖² = 4 ⟨x, y⟩ − 4
    return apart + (weights.unsqueeze(-2) @ pairs @ weights.unsqueeze(-1)).squeeze((-1, -2)).log()


def contrast(own: Tensor, other: Tensor, weights: Tensor) -> Tensor:
    """DuoRec's term of rows [..., n, d] with weights [..., n]."""
    alike = own @ other.transpose(-1, -2)
    logs = weights.log()
    from_own = torch.logsumexp(alike + logs.unsqueeze(-2), -1)
    from_other = torch.logsumexp(alike + logs.unsqueeze(-1), -2)
    pairs = alike.diagonal(dim1=-2, dim2=-1)
    return (weights * ((from_own + from_other) / 2 - pairs)).sum(-1)


def decorrelation(own: Tensor, other: Tensor, weights: Tensor) -> Tensor:
    """FedDecorr of rows [..., n, d] with weights [..., n]."""
    by = weights.unsqueeze(-1)
    centred = own - (by * own).sum(-2, keepdim=True)
    scaled = centred / ((by * centred.square()).sum(-2, keepdim=True) + 1e-8).sqrt()
    correlations = (by * scaled).transpose(-1, -2) @ scaled
    return correlations.square().mean((-1, -2))


_PENALTIES = {"au": alignment_and_uniformity, "duorec": contrast, "feddecorr": decorrelation}


@dataclass(frozen=True)
class Redundancy:
    """Penalty that aligns equal dimensions of two tables and decorrelates different ones."""

    size: int
    weight: float
    decorrelation: float

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """Projector and predictor, or nothing if the weight is zero."""
        square = (self.size, self.size)
        shapes = {"projector.weight": square, "projector.bias": (self.size,), "predictor.weight": square}
        return tuple(
            Leaf(name, shape, Home.PERSONAL, Init.LINEAR, fan_in=self.size)
            for name, shape in (shapes.items() if self.weight else ())
        )

    def loss(self, params: Params, own: Tensor, other: Tensor, batch: Batch) -> Tensor:
        """β · eRR of the rows [..., n, d] of a batch, one number per client."""
        ours, theirs = self._projected(params, own), self._projected(params, other)
        return self._of_products(_products(ours, theirs, batch), params["predictor.weight"])

    def gradient(self, params: Params, own: str, other: Tensor, batch: Batch) -> Params:
        """Gradients by the leaf `own` and the projector: analytic for large tensors, autograd otherwise."""
        rows, weight = params[own], params["projector.weight"]
        ours, theirs = self._projected(params, rows), self._projected(params, other)
        small = (*_products(ours, theirs, batch), params["predictor.weight"])
        with torch.enable_grad():
            both, first, second, predictor = (matrix.detach().requires_grad_() for matrix in small)
            loss = self._of_products(_Products(both, first, second), predictor)
            by_both, by_first, by_second, by_predictor = torch.autograd.grad(
                loss.sum(), (both, first, second, predictor)
            )
        by_ours = (theirs @ by_both.transpose(-1, -2)).add_(ours @ (by_first + by_first.transpose(-1, -2)))
        by_theirs = (ours @ by_both).add_(theirs @ (by_second + by_second.transpose(-1, -2)))
        weights = batch.weights.unsqueeze(-1)
        for by, projected in ((by_ours, ours), (by_theirs, theirs)):
            by.mul_(weights).mul_(projected.sign_())  # the derivative of the ReLU
        return {
            own: by_ours @ weight,
            "projector.weight": by_ours.transpose(-1, -2) @ rows + by_theirs.transpose(-1, -2) @ other,
            "projector.bias": by_ours.sum(-2) + by_theirs.sum(-2),
            "predictor.weight": by_predictor,
        }

    def _of_products(self, products: _Products, predictor: Tensor) -> Tensor:
        """The loss, from products of the projected columns: the predictor is linear, so these suffice."""

        def predicted(matrix: Tensor) -> Tensor:
            return predictor @ matrix @ predictor.transpose(-1, -2)

        def lengths(matrix: Tensor) -> Tensor:
            return predicted(matrix).diagonal(dim1=-2, dim2=-1).clamp(min=1e-24).sqrt()

        correlation = predicted(products.both) / lengths(products.first).unsqueeze(-1)
        correlation = correlation / lengths(products.second).unsqueeze(-2)
        diagonal = correlation.diagonal(dim1=-2, dim2=-1)
        apart = correlation.square().sum((-1, -2)) - diagonal.square().sum(-1)
        alike = (1 - diagonal).square().sum(-1)
        return (alike + self.decorrelation * apart) * (self.weight / self.size)

    def _projected(self, params: Params, rows: Tensor) -> Tensor:
        weight, bias = params["projector.weight"], params["projector.bias"]
        return torch.relu_((rows @ weight.transpose(-1, -2)).add_(bias.unsqueeze(-2)))


class _Products(NamedTuple):
    """Products [..., d, d] of the columns of two projected tables, with each other and with themselves."""

    both: Tensor
    first: Tensor
    second: Tensor


def _products(one: Tensor, two: Tensor, batch: Batch) -> _Products:
    """Products summed over the rows of the batch by weight. Later steps do not depend on the batch size."""
    weights = batch.weights.unsqueeze(-1)
    first, second = ((table * weights).transpose(-1, -2) for table in (one, two))
    return _Products(first @ two, first @ one, second @ two)


@dataclass(frozen=True)
class Mixed(OnLocal):
    """A view of the client's own table and the shared one, mixed by their traces."""

    redundancy: Regularizer

    @property
    def label(self) -> str:
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
        return _traces(tables, {ITEMS: TRACE, LOCAL: LOCAL_TRACE})

    def observe(self, before: Params, now: Params) -> Params:
        """The trace before the round, updated with the change of the touched rows."""
        return _updated(before, now, {LOCAL: LOCAL_TRACE})

    def share(self, params: Params) -> Tensor:
        """λ, [..., 1, 1]."""
        return _share(params[LOCAL_TRACE], params[TRACE])

    def table(self, params: Params) -> Tensor:
        return torch.lerp(params[ITEMS], params[LOCAL], self.share(params))

    def penalty(self, params: Params, batch: Batch, context: RoundContext) -> Tensor | float:
        """The method's own penalty on the mixed table, and redundancy reduction between the two tables."""
        total = super().penalty(params, batch, context)
        if self.redundancy.weight:
            total = total + self.redundancy.loss(params, params[LOCAL], params[ITEMS], batch)
        return total

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
class MixedAdditive(View):
    """FedRAP's two tables, mixed by their traces instead of added up."""

    inner: Additive
    redundancy: Regularizer
    label: str = "shared and personal table, mixed by NTK traces"

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        return (
            *self.inner.leaves,
            Leaf(TRACE, (1,), Home.SHARED, Init.ZEROS, derived_from=ITEMS),
            Leaf(OWN_TRACE, (1,), Home.PERSONAL, Init.ZEROS, derived_from=OWN),
            *self.redundancy.leaves,
        )

    def derive(self, tables: Params) -> Params:
        return _traces(tables, {ITEMS: TRACE, OWN: OWN_TRACE})

    def observe(self, before: Params, now: Params) -> Params:
        """The traces before the round, updated with the change of the touched rows of both tables."""
        return _updated(before, now, {ITEMS: TRACE, OWN: OWN_TRACE})

    def share(self, params: Params) -> Tensor:
        """λ, [..., 1, 1]."""
        return _share(params[OWN_TRACE], params[TRACE])

    def see(self, params: Params) -> Tensor:
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
        return f"{self.inner.label}, less redundant than downloaded"

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The view's own leaves, a copy of the table, and the projector."""
        (items,) = (leaf for leaf in self.inner.leaves if leaf.name == ITEMS)
        copy = replace(items, name=ANCHOR, upload=False, derived_from=ITEMS)
        return (*self.inner.leaves, copy, *self.redundancy.leaves)

    def derive(self, tables: Params) -> Params:
        return {ANCHOR: tables[ITEMS]} if ITEMS in tables else {}

    def penalty(self, params: Params, batch: Batch, context: RoundContext) -> Tensor | float:
        """The method's own penalty, and redundancy reduction against the downloaded rows."""
        against = self.redundancy.loss(params, params[ITEMS], params[ANCHOR], batch)
        return against + super().penalty(params, batch, context)


@dataclass(frozen=True)
class WithProjector(Update):
    """The method's own update, on the local table if there is one, with the projector trained along."""

    inner: Update
    view: Mixed | MixedAdditive | Anchored

    @property
    def label(self) -> str:
        return f"{self.inner.label}, with projector" if self.view.redundancy.leaves else self.inner.label

    def stages(self, context: RoundContext) -> tuple[Stage, ...]:
        return tuple(self._stage(stage, context) for stage in self.inner.stages(context))

    def _stage(self, stage: Stage, context: RoundContext) -> Stage:
        names = {ITEMS: LOCAL} if any(leaf.name == LOCAL for leaf in self.view.leaves) else {}
        projector = tuple(leaf.name for leaf in self.view.redundancy.leaves)
        along = (Move(projector, Sgd(context.hyper["projector_learning_rate"])),) if projector else ()

        def adapted(move: Move) -> Move:
            trains_items = ITEMS in move.all_leaves
            move = move.renamed(names)
            return replace(move, along=(*move.along, *along)) if trains_items else move

        own: Any = self.view
        view = replace(own, inner=stage.view) if stage.view else None
        return replace(stage, moves=tuple(adapted(move) for move in stage.moves), view=view)


@dataclass(frozen=True)
class UserAndItems(Update):
    """Train the user vector and the item table together, each with its own rate."""

    label: str = "all together"

    def stages(self, context: RoundContext) -> tuple[Stage, ...]:
        """One stage with one move and two learning rates."""
        hyper = context.hyper
        items = Move((ITEMS,), Sgd(hyper["item_learning_rate"], hyper["reg"], hyper["step_decay"]))
        user = Sgd(hyper["learning_rate"], hyper["reg"], hyper["step_decay"])
        return (Stage(context.local_epochs, (Move(("user",), user, (items,)),)),)


def local_global_mixing(method: Method, config: PLGCPlugConfig) -> Method:
    """Apply the plug-in to a method."""
    require_shared_table(method, "plgc")
    if any(leaf.name == ITEMS and leaf.init is Init.ZEROS for leaf in method.leaves):
        raise ConfigError(
            f"'plgc' cannot be used with {method.name!r}: its item table starts at zero, and tables "
            "of zeros have no traces to compute mixing weights from",
            "omit it, or use elastic-merge",
        )
    inside = method.view
    while isinstance(inside, Around):
        inside = inside.inner
    if isinstance(inside, Additive):
        if inside is not method.view:
            raise ConfigError(
                f"'plgc' cannot be used with {method.name!r}: it mixes FedRAP's own two tables, which "
                "another plug-in uses otherwise",
                "leave one of the plug-ins out",
            )
        own = MixedAdditive(inside, _redundancy(method, config))
        return replace(method, view=own, update=WithProjector(method.update, own))
    view = Mixed(method.view, _redundancy(method, config))
    return replace(method, view=view, update=WithProjector(method.update, view))


def _redundancy(method: Method, config: PLGCPlugConfig) -> Regularizer:
    if config.regularizer != "err":
        return FromTableIII(config.regularizer, config.redundancy)
    (d,) = next(leaf.shape for leaf in method.view.leaves if leaf.name == ITEMS)
    return Redundancy(d, config.redundancy, config.decorrelation)


def plgc(config: PLGCConfig) -> Method:
    """Build PLGC: dot × mixed by traces × joint × weighted mean."""
    method = mixing_backbone(config)
    if config.mixing:
        return replace(local_global_mixing(method, config), name="plgc")
    view = Anchored(method.view, _redundancy(method, config))
    return replace(method, name="plgc", view=view, update=WithProjector(method.update, view))


def mixing_backbone(config: MixingConfig) -> Method:
    """FedMF with SGD, a separate learning rate for items, and a weighted mean."""
    return Method(
        name="fedmf",
        paper="Shen et al. 2025",
        config=config,
        scorer=Dot(config.embedding_size, Init(config.user_start)),
        view=ItemTable(config.embedding_size),
        loss=BinaryCrossEntropy(),
        update=UserAndItems(),
        aggregate=Mean(weighted=True),
    )
