"""PLGC: local and shared table mixed by their NTK traces, and redundancy reduction between them.

Shen et al., "A Model-agnostic Strategy to Mitigate Embedding Degradation in Personalized Federated
Recommendation" (2025), for any method with a shared item table.

    q_i  = λ c_i + (1 − λ) g_i              C the client's own table, which is sent; G the shared one (Eq. 16)
    λ    = tr C Cᵀ / (tr C Cᵀ + tr G Gᵀ)    anew in every epoch; a constant to the gradient           (Eq. 15)
    loss = the method's own on Q + β · eRR(C, G), see `redundancy`                                    (Eq. 22)

The trace is the sum of all squared entries (Eq. 14). A client knows the contribution of its touched rows, so
it updates the trace without reading the others.

FedRAP already has a table of the client's own, D, and trains the shared one, C, on the client. These two are
mixed, λ D + (1 − λ) C, and there is no third table; penalties and upload stay FedRAP's.

Symbols: β is `redundancy`, γ is `decorrelation`. `plgc` is FedMF with both parts, by SGD with the learning
rates of its public relatives and the weighted mean; `fedmf --plugin plgc` is the same. `plgc-dlgm` has the
mixing, `plgc-err` only the redundancy reduction, between the table in training and the downloaded one.
`regularizer` replaces eRR as in Table III, see `regularizers`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import BaseModel, Field

from solera.core.choices import Move, Sgd, Stage, Update, view_knows
from solera.core.context import MethodConfig, RoundContext
from solera.core.errors import ConfigError
from solera.core.local_table import LOCAL, require_shared_table
from solera.core.losses import BinaryCrossEntropy
from solera.core.method import Method
from solera.core.parts import Dot, ItemTable, Mean
from solera.core.schedule import Schedule, Scheduled
from solera.core.spec import Init
from solera.core.wrappers import ITEMS, Around
from solera.methods.fedrap import Additive
from solera.methods.mixed_views import Anchored, Mixed, MixedAdditive, MixedKnowing
from solera.methods.redundancy import Redundancy
from solera.methods.regularizers import FromTableIII, Kind, Regularizer


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
    user_start: Literal["normal", "linear"] = Field(
        default="normal", description="user vectors start as N(0, 1), or as the weights of a linear layer"
    )


class PLGCConfig(PLGCPlugConfig, MixingConfig):
    """Options including redundancy reduction."""


@dataclass(frozen=True)
class WithProjector:
    """The method's own update, on the local table if there is one, with the projector trained along."""

    inner: Update
    view: Mixed | MixedAdditive | Anchored

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
        own: Any = self.view
        view = replace(own, inner=stage.view) if stage.view else None
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
    return replace(local_global_mixing(mixing_backbone(config), config), name="plgc")


def plgc_dlgm(config: MixingConfig) -> Method:
    """The ablation with dynamic local-global mixing alone."""
    method = local_global_mixing(mixing_backbone(config), PLGCPlugConfig.model_validate({"redundancy": 0.0}))
    return replace(method, name="plgc-dlgm", paper="Shen et al. 2025, ablation")


def plgc_err(config: PLGCConfig) -> Method:
    """The ablation with embedding redundancy reduction alone."""
    method = mixing_backbone(config)
    view = Anchored(method.view, _redundancy(method, config))
    update = WithProjector(method.update, view)
    return replace(method, name="plgc-err", paper="Shen et al. 2025, ablation", view=view, update=update)


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
