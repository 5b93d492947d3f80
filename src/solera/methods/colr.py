"""CoLR: the change of the item table has low rank, and only one of its factors is sent.

Nguyen et al., "Towards Efficient Communication and Secure Federated Recommendation System via Low-rank
Training" (WWW 2024).

    score(u, i) = ⟨p_u, q_i + a_i B⟩       p_u personal, Q shared; B [r, d] the same for everybody in a round
    local:      p_u and A ← steps, from A = 0
    upload:     A, r numbers an item instead of d
    server:     Q ← Q + mean(A) · B, which is the mean of the clients' A · B; a new B for the next round

B is random and determined by the round number, so nobody has to send it. As in the public code, its rows
are orthogonal and have length √(d / r).

Symbols: r is `rank`.

The paper divides an item's A by the number of all clients, so an item that few have hardly moves. The public
code divides it by the number of clients that touched the item: `row_mean`.

Differences from the public code: the code scales A's gradient by √(r / d), which
has no effect on Adam. The code uses SGD; here it is Adam, as in FedMF. The homomorphic encryption of A
protects uploads and is not part of the method.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from solera.core.context import Batch, RoundContext, Schedule, Scheduled
from solera.core.errors import ConfigError
from solera.core.leaf import Home, Init, Leaf, Params
from solera.core.method import Method
from solera.core.parts import Adam, Move, Stage, Update, View
from solera.core.randomness import Purpose
from solera.core.upload import Totals
from solera.methods.parts import BinaryCrossEntropy, Dot, FactorizationConfig, Mean, OfMean


class CoLRConfig(FactorizationConfig):
    """Defaults: those of FedMF, and the rank used in FedEM's comparison."""

    learning_rate: Scheduled = Field(
        default=Schedule(start=0.01), description="step size of user vector and A"
    )
    rank: int = Field(default=4, ge=1, description="r, numbers an item that are trained and sent")
    row_mean: bool = Field(
        default=False, description="divide A by the clients that touch an item, as in the public code"
    )


def basis(embedding_size: int, rank: int, context: RoundContext) -> Tensor:
    """B [rank, embedding_size] of a round."""
    drawn = context.generator(Purpose.INIT, *b"low-rank").standard_normal((embedding_size, rank))
    orthonormal, upper = np.linalg.qr(drawn)
    signs = np.sign(np.diagonal(upper))  # not determined by a QR decomposition
    return torch.from_numpy(orthonormal * signs * math.sqrt(embedding_size / rank)).T


@dataclass(frozen=True)
class LowRankChange(View):
    """The shared table. With a basis B, it includes the change A · B that is being trained."""

    embedding_size: int
    rank: int
    basis: Tensor | None = None
    label: str = "shared + low-rank change"

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        return (
            Leaf("items", (self.embedding_size,), Home.SHARED, per_item=True),
            Leaf("factor", (self.rank,), Home.SHARED, Init.ZEROS, per_item=True, upload=True),
        )

    def see(self, params: Params) -> Tensor:
        """Q + A B, or Q between rounds, when A is zero."""
        items = params["items"]
        return items if self.basis is None else items + params["factor"] @ self.basis.to(items)

    def gradient(self, params: Params, slope: Tensor, batch: Batch, context: RoundContext) -> Params:
        """The gradient for A: the incoming gradient · Bᵀ."""
        return {} if self.basis is None else {"factor": slope @ self.basis.to(slope).T}


@dataclass(frozen=True)
class UserAndFactor(Update):
    """Train the user vector and A together, with the round's B."""

    embedding_size: int
    rank: int
    label: str = "all together"

    def stages(self, context: RoundContext) -> tuple[Stage, ...]:
        optimizer = Adam(context.hyper["learning_rate"], context.hyper["reg"])
        view = LowRankChange(self.embedding_size, self.rank, basis(self.embedding_size, self.rank, context))
        return (Stage(context.local_epochs, (Move(("user", "factor"), optimizer),), view),)


@dataclass(frozen=True)
class MeanOfFactors(OfMean):
    """Add the mean A times B to the table, and reset A to zero."""

    @property
    def label(self) -> str:
        return f"{self.mean.label}, low rank"

    def combine(self, shared: Params, totals: Totals, context: RoundContext) -> Params:
        items, factor = shared["items"], shared["factor"]
        mean = self.mean.change(totals, "factor")
        b = basis(items.shape[1], factor.shape[1], context).to(mean)
        return shared | {"items": (items.double() + mean @ b).to(items.dtype)}


def colr(config: CoLRConfig) -> Method:
    """Build CoLR: dot × low-rank change × joint × mean of the factors."""
    d, rank = config.embedding_size, config.rank
    if rank > d:
        raise ConfigError(f"rank {rank} is larger than the item vectors ({d} values)", "lower -o rank=…")
    return Method(
        name="colr",
        paper="Nguyen et al. 2024",
        config=config,
        scorer=Dot(d),
        view=LowRankChange(d, rank),
        loss=BinaryCrossEntropy(),
        update=UserAndFactor(d, rank),
        aggregate=MeanOfFactors(Mean(by_row=config.row_mean)),
    )
