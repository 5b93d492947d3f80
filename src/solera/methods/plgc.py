"""PLGC: local and shared table mixed by their NTK traces, and redundancy reduction between them.

Shen et al., "A Model-agnostic Strategy to Mitigate Embedding Degradation in Personalized Federated
Recommendation" (2025), for any method with a shared item table.

    q_i  = λ c_i + (1 − λ) g_i              C the client's own table, which is sent; G the shared one (Eq. 16)
    λ    = tr C Cᵀ / (tr C Cᵀ + tr G Gᵀ)    anew in every epoch; a constant to the gradient           (Eq. 15)
    loss = the method's own on Q + β · eRR(C, G), see `redundancy`                                    (Eq. 22)

The trace is the sum of all squared entries (Eq. 14). A client knows the contribution of its touched rows, so
it updates the trace without reading the others.

Symbols: β is `redundancy`, γ is `decorrelation`. `plgc` is FedMF with both parts, with the learning rates of
its public relatives; `plgc-dlgm` has only the mixing, `plgc-err` only the redundancy reduction, between the
table in training and the downloaded one. `regularizer` replaces eRR as in Table III, see `regularizers`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pydantic import BaseModel, Field
from torch import Tensor

from solera.core.choices import Move, Sgd, Stage, Update, view_knows
from solera.core.context import Batch, MethodConfig, RoundContext
from solera.core.errors import ConfigError
from solera.core.local_table import LOCAL, OnLocal, require_shared_table
from solera.core.losses import BinaryCrossEntropy
from solera.core.method import Method
from solera.core.parts import Dot, ItemTable, Mean
from solera.core.schedule import Schedule, Scheduled
from solera.core.spec import Home, Init, Leaf, Params
from solera.core.wrappers import ITEMS, Around
from solera.methods.redundancy import Redundancy
from solera.methods.regularizers import FromTableIII, Kind, Regularizer

ANCHOR, TRACE, LOCAL_TRACE = "items.downloaded", "items.trace", "items.local.trace"


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
    """Options of the ablation without redundancy reduction. Defaults: the paper's sizes; tuned rates."""

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


class PLGCConfig(PLGCPlugConfig, MixingConfig):
    """Options including redundancy reduction."""


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
        names = {ITEMS: TRACE, LOCAL: LOCAL_TRACE}
        return {
            names[name]: table.square().sum((-1, -2)).unsqueeze(-1)
            for name, table in tables.items()
            if name in names
        }

    def observe(self, before: Params, now: Params) -> Params:
        """The trace before the round, updated with the change of the touched rows."""
        grown = (now[LOCAL].square() - before[LOCAL].square()).sum((-1, -2)).unsqueeze(-1)
        return {LOCAL_TRACE: before[LOCAL_TRACE] + grown}

    def share(self, params: Params) -> Tensor:
        """λ, [..., 1, 1]."""
        own = params[LOCAL_TRACE].detach()
        return (own / (own + params[TRACE])).unsqueeze(-1)

    def merged_by(self, before: Params, after: Params) -> Tensor:
        """1 − λ, as used for serving."""
        return 1 - self.share(after)

    def table(self, params: Params) -> Tensor:
        """The mixed table."""
        return params[ITEMS] + self.share(params) * (params[LOCAL] - params[ITEMS])

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


@dataclass(frozen=True)
class WithProjector:
    """The method's own update, on the local table if there is one, with the projector trained along."""

    inner: Update
    view: Mixed | Anchored

    @property
    def label(self) -> str:
        """The method's own label, and the projector if there is one."""
        return f"{self.inner.label}, with projector" if self.view.redundancy.leaves else self.inner.label

    def stages(self, context: RoundContext) -> tuple[Stage, ...]:
        """The method's stages, with the projector."""
        return tuple(self._stage(stage, context) for stage in self.inner.stages(context))

    def _stage(self, stage: Stage, context: RoundContext) -> Stage:
        names = {ITEMS: LOCAL} if isinstance(self.view, Mixed) else {}
        projector = tuple(leaf.name for leaf in self.view.redundancy.leaves)
        along = (Move(projector, Sgd(context.hyper["projector_learning_rate"])),) if projector else ()

        def adapted(move: Move) -> Move:
            trains_items = ITEMS in move.all_leaves
            move = move.renamed(names)
            return replace(move, along=(*move.along, *along)) if trains_items else move

        # A stage's own view has an analytic gradient if the method's has.
        view = replace(self.view, inner=stage.view) if stage.view else None
        return replace(stage, moves=tuple(adapted(move) for move in stage.moves), view=view)


@dataclass(frozen=True)
class UserAndItems:
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
    mixed = MixedKnowing if view_knows(method.view) else Mixed
    view = mixed(method.view, _redundancy(method, config))
    return replace(method, view=view, update=WithProjector(method.update, view))


def _redundancy(method: Method, config: PLGCPlugConfig) -> Regularizer:
    if config.regularizer != "err":
        return FromTableIII(config.regularizer, config.redundancy)
    (d,) = next(leaf.shape for leaf in method.view.leaves if leaf.name == ITEMS)
    return Redundancy(d, config.redundancy, config.decorrelation)


def plgc(config: PLGCConfig) -> Method:
    """Build PLGC: dot × mixed by traces × joint × weighted mean."""
    return replace(local_global_mixing(_backbone(config), config), name="plgc")


def plgc_dlgm(config: MixingConfig) -> Method:
    """The ablation with dynamic local-global mixing alone."""
    method = local_global_mixing(_backbone(config), PLGCPlugConfig.model_validate({"redundancy": 0.0}))
    return replace(method, name="plgc-dlgm", paper="Shen et al. 2025, ablation")


def plgc_err(config: PLGCConfig) -> Method:
    """The ablation with embedding redundancy reduction alone."""
    method = _backbone(config)
    view = Anchored(method.view, _redundancy(method, config))
    update = WithProjector(method.update, view)
    return replace(method, name="plgc-err", paper="Shen et al. 2025, ablation", view=view, update=update)


def _backbone(config: MixingConfig) -> Method:
    """FedMF with a separate learning rate for items."""
    return Method(
        name="fedmf",
        paper="Shen et al. 2025",
        config=config,
        scorer=Dot(config.embedding_size),
        view=ItemTable(config.embedding_size),
        loss=BinaryCrossEntropy(),
        update=UserAndItems(),
        aggregate=Mean(weighted=True),
    )
