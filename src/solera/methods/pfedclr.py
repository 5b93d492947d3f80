"""PFedCLR: calibration by low-rank decomposition.

Chen et al., "Beyond Personalization: Federated Recommendation with Calibration via Low-rank Decomposition"
(2025).

    score(u, i) = ⟨p_u, q_ui + a_ui B_u⟩        p_u, A_u and B_u personal, Q shared
    local, step 1:  Q_u ← steps on Q as downloaded, with p_u frozen and without A_u B_u               (Eq. 6)
           upload:  Q_u
           step 2:  p_u, A_u, B_u ← steps with Q_u frozen                                            (Eq. 10)
    server:         Q ← Σ |D_u| Q_u / Σ |D_u|                                                        (Eq. 11)
    served:         with the client's own Q_u + A_u B_u

A starts at zero and B Gaussian. Step 2 does not change Q_u, so the upload after it is the result of step 1.

Symbols: η is `learning_rate`, β is `buffer_learning_rate`, r is `rank`. All settings are the paper's.

Ablations are options: `buffer=full` has a full matrix W_u in place of A_u B_u; with `calibrated=false`
everything steps together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from pydantic import BaseModel, Field
from torch import Tensor

from solera.core.context import Batch, RoundContext, Schedule, Scheduled
from solera.core.errors import ConfigError
from solera.core.leaf import ITEMS, Home, Init, Leaf, Params
from solera.core.method import Method
from solera.core.parts import Adam, Move, Stage, Update, View
from solera.methods.parts import (
    BinaryCrossEntropy,
    Dot,
    FactorizationConfig,
    ItemTable,
    Joint,
    Kept,
    Mean,
    require_shared_table,
)

PAPER = "Chen et al. 2025, calibration"


class LowRankConfig(BaseModel):
    """Options of the buffer. Defaults: the paper's settings."""

    buffer_learning_rate: Scheduled = Field(
        default=Schedule(start=0.01), description="step size of the buffer"
    )
    rank: int = Field(default=2, ge=1, le=12, description="r, of the low-rank buffer")


class PFedCLRConfig(LowRankConfig, FactorizationConfig):
    """Defaults: the paper's settings, which sample 60 % of the clients."""

    local_epochs: int = Field(
        default=10, ge=1, description="passes over a client's own data in each of the two steps"
    )
    clients_per_round: float = Field(
        default=0.6, gt=0, description="share of the clients per round, or their number"
    )
    buffer: Literal["low-rank", "full"] = Field(
        default="low-rank", description="the personal buffer: A B of this rank, or a full table"
    )
    calibrated: bool = Field(
        default=True, description="whether the buffer is trained after the items; otherwise together"
    )


@dataclass(frozen=True)
class LowRank(Kept):
    """A view of the client's own fine-tuned item table plus a low-rank personal one."""

    rank: int = 2

    @property
    def label(self) -> str:
        return f"{self.inner.label}, kept + low-rank personal"

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        (d,) = next(leaf.shape for leaf in self.inner.leaves if leaf.name == ITEMS)
        return (
            *self.inner.leaves,
            Leaf("buffer.a", (self.rank,), Home.PERSONAL, Init.ZEROS, per_item=True),
            Leaf("buffer.b", (self.rank, d), Home.PERSONAL),
        )

    def table(self, params: Params) -> Tensor:
        return params[ITEMS] + params["buffer.a"] @ params["buffer.b"]

    def gradient(self, params: Params, slope: Tensor, batch: Batch, context: RoundContext) -> Params:
        """The inner view's gradient for Q, times Bᵀ for A; Aᵀ times it for B."""
        found = self.inner_gradient(params, slope, batch, context)
        a = found[ITEMS] @ params["buffer.b"].transpose(-1, -2)
        b = params["buffer.a"].transpose(-1, -2) @ found[ITEMS]
        return found | {"buffer.a": a, "buffer.b": b}


@dataclass(frozen=True)
class FullBuffer(View):
    """The client's own fine-tuned table plus a personal one that starts at zero."""

    embedding_size: int
    label: str = "shared, kept + personal buffer"
    keeps: tuple[str, ...] = ("items",)

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        buffer = Leaf("buffer", (self.embedding_size,), Home.PERSONAL, Init.ZEROS, per_item=True)
        return (*ItemTable(self.embedding_size).leaves, buffer)

    def see(self, params: Params) -> Tensor:
        return params["items"] + params["buffer"]

    def gradient(self, params: Params, slope: Tensor, batch: Batch, context: RoundContext) -> Params:
        return {"items": slope, "buffer": slope}


@dataclass(frozen=True)
class ItemsThenRest(Update):
    """Train the items alone with the method's own steps; then, items frozen, all else and the buffer."""

    inner: Update
    view: View  # without the buffer
    buffer: tuple[str, ...]
    label: str = "items, upload, then the rest"

    def stages(self, context: RoundContext) -> tuple[Stage, ...]:
        """Twice as many stages. Those of the items do not see the buffer."""
        stages = self.inner.stages(context)
        buffer = Move(self.buffer, Adam(context.hyper["buffer_learning_rate"], context.hyper["reg"]))

        def moves(stage: Stage, items: bool) -> tuple[Move, ...]:
            halves = (
                move.only({name for name in move.all_leaves if (name == ITEMS) == items})
                for move in stage.moves
            )
            return tuple(half for half in halves if half)

        of_items = [
            replace(stage, moves=moves(stage, True), view=stage.view or self.view) for stage in stages
        ]
        of_rest = [replace(stage, moves=moves(stage, False)) for stage in stages]
        first, *others = of_rest[-1].moves or (None,)
        last = replace(first, along=(*first.along, buffer)) if first else buffer
        of_rest[-1] = replace(of_rest[-1], moves=(last, *others))
        return tuple(stage for stage in (*of_items, *of_rest) if stage.moves)


@dataclass(frozen=True)
class Everything(Update):
    """Train the user vector, items and buffer together."""

    buffer: tuple[str, ...]
    label: str = "all together"

    def stages(self, context: RoundContext) -> tuple[Stage, ...]:
        hyper = context.hyper
        buffer = Move(self.buffer, Adam(hyper["buffer_learning_rate"], hyper["reg"]))
        both = Adam(hyper["learning_rate"], hyper["reg"])
        return (Stage(context.local_epochs, (Move(("user", ITEMS), both, (buffer,)),)),)


def low_rank(method: Method, config: LowRankConfig) -> Method:
    """Apply the plug-in: calibration on any method with a shared item table."""
    require_shared_table(method, "low-rank")
    if ITEMS in method.view.keeps:
        raise ConfigError(
            f"'low-rank' cannot be used with {method.name!r}: its clients already keep their fine-tuned "
            "table, which calibration would train at another time",
            "leave it out, or calibrate a method that does not keep one",
        )
    view = LowRank(method.view, config.rank)
    update = ItemsThenRest(method.update, method.view, ("buffer.a", "buffer.b"))
    return replace(method, view=view, update=update)


def pfedclr(config: PFedCLRConfig) -> Method:
    """Build PFedCLR: dot × low-rank × items, upload, rest × weighted mean."""
    items = ItemTable(config.embedding_size)
    full = config.buffer == "full"
    buffer = ("buffer",) if full else ("buffer.a", "buffer.b")
    plain = Joint(("user", ITEMS), Adam)
    return Method(
        name="pfedclr",
        paper=PAPER,
        config=config,
        scorer=Dot(config.embedding_size),
        view=FullBuffer(config.embedding_size) if full else LowRank(items, config.rank),
        loss=BinaryCrossEntropy(),
        update=ItemsThenRest(plain, items, buffer) if config.calibrated else Everything(buffer),
        aggregate=Mean(weighted=True),
    )
