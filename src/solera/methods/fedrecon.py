"""FedRecon: the user vector is rebuilt in every round.

Singhal et al., "Federated Reconstruction: Partially Local Federated Learning" (NeurIPS 2021).

    score(u, i) = ⟨p_u, q_i⟩        p_u personal, Q shared
    local, step 1:  p_u ← steps from where it always starts, with Q as downloaded
           step 2:  Q   ← steps, with p_u as rebuilt
    server:         Q ← Σ |D_u| Q_u / Σ |D_u|
    served:         with the p_u last rebuilt

A device does not have to keep anything between rounds. A client that was never seen before is served like any
other, by step 1 alone.

Symbols: k_r and η_r of step 1 are `rebuild_epochs` and `rebuild_learning_rate`, k_u and η_u of step 2 are
`local_epochs` and `learning_rate`; the server's rate is 1.

Left out: the original may split a client's data, with one half for step 1 and the other for step 2; here both
use all. The original's p_u starts at random; here it starts from the same draw for every client and round.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pydantic import Field

from solera.core.context import MethodConfig, RoundContext, Schedule, Scheduled
from solera.core.leaf import Leaf
from solera.core.method import Method
from solera.core.parts import Adam, Move, Stage, Update
from solera.methods.parts import BinaryCrossEntropy, Dot, ItemTable, Mean


class FedReconConfig(MethodConfig):
    """Defaults: those of FedMF, with larger steps for the vector, which is trained in a single round."""

    embedding_size: int = Field(default=16, ge=1, description="length of user and item vectors")
    learning_rate: Scheduled = Field(default=Schedule(start=0.01), description="step size of item vectors")
    rebuild_learning_rate: Scheduled = Field(
        default=Schedule(start=0.1), description="step size of the user vector"
    )
    rebuild_epochs: int = Field(
        default=10, ge=1, description="passes over a client's own data to rebuild its vector"
    )
    local_epochs: int = Field(
        default=10, ge=1, description="passes over a client's own data to train the items"
    )


@dataclass(frozen=True)
class RebuiltDot(Dot):
    """⟨user, item⟩ with a user vector that is initialized again in every round."""

    label: str = "dot with rebuilt user vector"

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        (user,) = super().leaves
        return (replace(user, fresh=True),)


@dataclass(frozen=True)
class RebuildThenTrain(Update):
    """Train the user vector alone, then the items alone."""

    label: str = "user vector, then items"

    def stages(self, context: RoundContext) -> tuple[Stage, ...]:
        hyper = context.hyper
        user = Move(("user",), Adam(hyper["rebuild_learning_rate"], hyper["reg"]))
        items = Move(("items",), Adam(hyper["learning_rate"], hyper["reg"]))
        return Stage(int(hyper["rebuild_epochs"]), (user,)), Stage(context.local_epochs, (items,))


def fedrecon(config: FedReconConfig) -> Method:
    """Build FedRecon: rebuilt dot × shared × user, then items × weighted mean."""
    return Method(
        name="fedrecon",
        paper="Singhal et al. 2021",
        config=config,
        scorer=RebuiltDot(config.embedding_size),
        view=ItemTable(config.embedding_size),
        loss=BinaryCrossEntropy(),
        update=RebuildThenTrain(),
        aggregate=Mean(weighted=True),
    )
