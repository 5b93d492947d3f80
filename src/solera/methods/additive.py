"""Additive personalization as a plug-in: a personal table that is added to the shared one and never sent.

After FedRAP (Li et al., ICLR 2024), without its two penalties:

    q_ui = q_i + d_ui          Q shared, D_u personal and zero at the start
    local:  D_u steps along with Q, with a rate and a penalty of its own
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pydantic import BaseModel, Field
from torch import Tensor

from solera.core.context import Batch, RoundContext, Schedule, Scheduled
from solera.core.errors import ConfigError
from solera.core.leaf import ITEMS, Home, Init, Leaf, Params
from solera.core.method import Method
from solera.core.parts import Move, Stage, Update
from solera.methods.parts import Around, require_shared_table

OWN = "own"


class AdditiveConfig(BaseModel):
    """Defaults: a tenth of the usual learning rate."""

    own_learning_rate: Scheduled = Field(
        default=Schedule(start=0.01), description="step size of the personal table"
    )
    own_reg: float = Field(default=0.0, ge=0, description="L2 penalty on the personal table")


@dataclass(frozen=True)
class Plus(Around):
    """A view of the sum of the shared table and a personal one."""

    @property
    def label(self) -> str:
        return f"{self.inner.label} + personal table"

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        shape = next(leaf.shape for leaf in self.inner.leaves if leaf.name == ITEMS)
        return (*self.inner.leaves, Leaf(OWN, shape, Home.PERSONAL, Init.ZEROS, per_item=True))

    def table(self, params: Params) -> Tensor:
        return params[ITEMS] + params[OWN]

    def gradient(self, params: Params, slope: Tensor, batch: Batch, context: RoundContext) -> Params:
        """The inner view's gradients, with the gradient by "items" for both tables."""
        found = self.inner_gradient(params, slope, batch, context)
        return found | {OWN: found[ITEMS].clone()}


@dataclass(frozen=True)
class WithOwn(Update):
    """The method's own update, with the personal table trained along with the shared one."""

    inner: Update

    @property
    def label(self) -> str:
        return f"{self.inner.label}, personal table along"

    def stages(self, context: RoundContext) -> tuple[Stage, ...]:
        """The method's stages, with the personal table trained wherever the items are."""
        rate, reg = context.hyper["own_learning_rate"], context.hyper["own_reg"]

        def along(move: Move) -> Move:
            mover = next((part for part in move.parts if ITEMS in part.leaves), None)
            if mover is None:
                return move
            own = Move((OWN,), replace(mover.optimizer, learning_rate=rate, reg=reg))
            return replace(move, along=(*move.along, own))

        return tuple(
            replace(stage, moves=tuple(along(move) for move in stage.moves))
            for stage in self.inner.stages(context)
        )


def additive(method: Method, config: AdditiveConfig) -> Method:
    """Apply the plug-in to a method."""
    require_shared_table(method, "additive")
    if any(leaf.name == OWN for leaf in method.leaves):
        raise ConfigError(
            f"'additive' cannot be used with {method.name!r}: its clients already have a personal table",
            "leave it out",
        )
    if any(stage.view for stage in method.update.stages(method.context(0, 1))):
        raise ConfigError(
            f"'additive' cannot be used with {method.name!r}: its item table is trained in a separate view",
            "choose a method with one view",
        )
    return replace(method, view=Plus(method.view), update=WithOwn(method.update))
