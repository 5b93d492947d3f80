"""PFedCLR: calibration by low-rank decomposition.

"Beyond Personalization: Federated Recommendation with Calibration via Low-rank Decomposition" (2025).

    score(u, i) = ⟨p_u, q_ui + a_ui B_u⟩        p_u, A_u and B_u personal, Q shared
    local, step 1:  Q_u ← steps on Q as downloaded, with p_u frozen and without A_u B_u               (Eq. 6)
           upload:  Q_u
           step 2:  p_u, A_u, B_u ← steps with Q_u frozen                                            (Eq. 10)
    server:         Q ← Σ |D_u| Q_u / Σ |D_u|                                                        (Eq. 11)
    served:         with the client's own Q_u + A_u B_u

A starts at zero and B Gaussian. Step 2 leaves Q_u alone, so what is uploaded after it is what step 1 left.

Symbols: η is `learning_rate`, β is `buffer_learning_rate`, r is `rank`. The paper says that η = β = 0.01 and
that all else is as in its FedMF; the optimiser and the local epochs are not said, and are FedMF's here.

Ablations: `pfedclr-cf` has a full matrix W_u in the place of A_u B_u; `pfedclr-af` has the full matrix but no
calibration: everything steps together.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field
from torch import Tensor

from solera.core.choices import Adam, Move, Stage
from solera.core.context import Batch, MethodConfig, RoundContext
from solera.core.method import Method
from solera.core.parts import Dot, ItemTable, Mean, Plain
from solera.core.schedule import Schedule, Scheduled
from solera.core.spec import Home, Init, Leaf, Params


class PFedCLRConfig(MethodConfig):
    """Defaults: the paper's settings; client sampling is 60 % there."""

    embedding_size: int = Field(16, ge=1, description="length of user and item vectors")
    learning_rate: Scheduled = Field(Schedule(start=0.01), description="step size of user and item vectors")
    buffer_learning_rate: Scheduled = Field(Schedule(start=0.01), description="step size of A and B")
    rank: int = Field(2, ge=1, le=12, description="r, of the low-rank buffer")
    local_epochs: int = Field(
        10, ge=1, description="passes over a client's own data in each of the two steps"
    )
    clients_per_round: float = Field(0.6, gt=0, description="share of the clients per round, or their number")


@dataclass(frozen=True)
class LowRank:
    """The client's own fine-tuned table plus a low-rank personal one."""

    embedding_size: int
    rank: int
    label: str = "shared, kept + low-rank personal"
    keeps: tuple[str, ...] = ("items",)

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """Q, A and B."""
        return (
            *ItemTable(self.embedding_size).leaves,
            Leaf("buffer.a", (self.rank,), Home.PERSONAL, Init.ZEROS, per_item=True),
            Leaf("buffer.b", (self.rank, self.embedding_size), Home.PERSONAL),
        )

    def see(self, params: Params) -> Tensor:
        """Q + A B."""
        return params["items"] + params["buffer.a"] @ params["buffer.b"]

    def gradient(self, params: Params, slope: Tensor, batch: Batch, context: RoundContext) -> Params:
        """The slope for Q, slope · Bᵀ for A and Aᵀ · slope for B."""
        a = slope @ params["buffer.b"].transpose(-1, -2)
        b = params["buffer.a"].transpose(-1, -2) @ slope
        return {"items": slope, "buffer.a": a, "buffer.b": b}


@dataclass(frozen=True)
class FullBuffer:
    """The client's own fine-tuned table plus a personal one that starts at zero."""

    embedding_size: int
    label: str = "shared, kept + personal buffer"
    keeps: tuple[str, ...] = ("items",)

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """Q and W."""
        buffer = Leaf("buffer", (self.embedding_size,), Home.PERSONAL, Init.ZEROS, per_item=True)
        return (*ItemTable(self.embedding_size).leaves, buffer)

    def see(self, params: Params) -> Tensor:
        """Q + W."""
        return params["items"] + params["buffer"]

    def gradient(self, params: Params, slope: Tensor, batch: Batch, context: RoundContext) -> Params:
        """The slope for both."""
        return {"items": slope, "buffer": slope}


@dataclass(frozen=True)
class ItemsThenRest:
    """The items alone, then, with the items frozen, the user vector and the buffer."""

    embedding_size: int
    buffer: tuple[str, ...]
    label: str = "items, upload, then the rest"

    def stages(self, context: RoundContext) -> tuple[Stage, ...]:
        """Two stages; the first does not see the buffer."""
        user, buffer = _moves(context, self.buffer)
        items = Move(("items",), user.optimizer)
        return (
            Stage(context.local_epochs, (items,), ItemTable(self.embedding_size)),
            Stage(context.local_epochs, (Move(user.leaves, user.optimizer, (buffer,)),)),
        )


@dataclass(frozen=True)
class Everything:
    """User vector, items and buffer together."""

    buffer: tuple[str, ...]
    label: str = "all together"

    def stages(self, context: RoundContext) -> tuple[Stage, ...]:
        """One stage."""
        user, buffer = _moves(context, self.buffer)
        return (Stage(context.local_epochs, (Move(("user", "items"), user.optimizer, (buffer,)),)),)


def _moves(context: RoundContext, buffer: tuple[str, ...]) -> tuple[Move, Move]:
    hyper = context.hyper
    user = Move(("user",), Adam(hyper["learning_rate"], hyper["reg"]))
    return user, Move(buffer, Adam(hyper["buffer_learning_rate"], hyper["reg"]))


def pfedclr(config: PFedCLRConfig) -> Method:
    """dot × low-rank × items, upload, rest × weighted mean × plain."""
    d = config.embedding_size
    return Method(
        name="pfedclr",
        paper="Beyond Personalization 2025",
        config=config,
        scorer=Dot(d),
        view=LowRank(d, config.rank),
        update=ItemsThenRest(d, ("buffer.a", "buffer.b")),
        aggregate=Mean(weighted=True),
        wire=Plain(),
    )


def pfedclr_cf(config: PFedCLRConfig) -> Method:
    """The ablation with a full matrix, calibrated."""
    d = config.embedding_size
    return Method(
        name="pfedclr-cf",
        paper="Beyond Personalization 2025, ablation",
        config=config,
        scorer=Dot(d),
        view=FullBuffer(d),
        update=ItemsThenRest(d, ("buffer",)),
        aggregate=Mean(weighted=True),
        wire=Plain(),
    )


def pfedclr_af(config: PFedCLRConfig) -> Method:
    """The ablation with a full matrix and no calibration."""
    d = config.embedding_size
    return Method(
        name="pfedclr-af",
        paper="Beyond Personalization 2025, ablation",
        config=config,
        scorer=Dot(d),
        view=FullBuffer(d),
        update=Everything(("buffer",)),
        aggregate=Mean(weighted=True),
        wire=Plain(),
    )
