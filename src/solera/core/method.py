"""A method is five choices: scorer, view, update, aggregate, wire.

Parts are written over trailing axes. A leaf of a client has its own shape; the rows of a per-item leaf
have shape [..., n, *shape] for the n items of a batch. Whatever stands in front (nothing in the reference
engine, the clients of a block in the block engine) belongs to the engine and must be left alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from solera.core.errors import ConfigError
from solera.core.losses import binary_cross_entropy, binary_cross_entropy_slope
from solera.core.schedule import Schedule, Scheduled
from solera.core.spec import Home, Leaf, Params
from solera.core.upload import Totals


class MethodConfig(BaseModel):
    """Hyper-parameters every method has. A method's own config adds its own and may change defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    embedding_size: int = Field(32, ge=1, description="length of an item vector")
    learning_rate: Scheduled = Field(Schedule(start=0.1), description="step size; may be e.g. 0.1*0.97^round")
    reg: float = Field(0.0, ge=0, description="L2 penalty on everything that is trained")
    local_epochs: int = Field(1, ge=1, description="passes over a client's own data per round")
    batch_size: int = Field(256, ge=1, description="samples per local step")
    negatives: int = Field(4, ge=1, description="negatives drawn per positive, anew every round")
    clients_per_round: float = Field(
        1.0, gt=0, description="share of the clients per round (up to 1), or their number (above 1)"
    )


@dataclass(frozen=True)
class RoundContext:
    """What holds for one round: frozen, every schedule already resolved."""

    round: int
    n_items: int
    hyper: Mapping[str, float]

    @classmethod
    def of(cls, config: MethodConfig, round_: int, n_items: int) -> RoundContext:
        """Resolve a config for a round."""
        values = {name: getattr(config, name) for name in type(config).model_fields}
        hyper = {
            name: value.at(round_) if isinstance(value, Schedule) else value
            for name, value in values.items()
            if isinstance(value, (Schedule, int, float))
        }
        return cls(round_, n_items, hyper)

    @property
    def local_epochs(self) -> int:
        """Passes over the client's own data."""
        return int(self.hyper["local_epochs"])

    @property
    def batch_size(self) -> int:
        """Samples per local step."""
        return int(self.hyper["batch_size"])

    @property
    def negatives(self) -> int:
        """Negatives drawn per positive."""
        return int(self.hyper["negatives"])


class Batch(NamedTuple):
    """The samples of one step, [..., n].

    `weights` sum to 1 over the n samples and are 0 for padding; `positives` are the weights of the positives
    and 0 for all others. Several samples of one item may stand as one, their weights added up.
    """

    weights: Tensor
    positives: Tensor


class Scorer(Protocol):
    """How a user scores an item vector."""

    @property
    def label(self) -> str:
        """The choice in a few words."""
        ...

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The leaves it needs."""
        ...

    def score(self, params: Params, items: Tensor) -> Tensor:
        """Scores [..., n] of item vectors [..., n, d]."""
        ...


class View(Protocol):
    """How a client sees the item table."""

    @property
    def label(self) -> str:
        """The choice in a few words."""
        ...

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The leaves it needs."""
        ...

    @property
    def keeps(self) -> tuple[str, ...]:
        """Shared per-item leaves whose locally trained rows the client keeps, and is served with."""
        ...

    def see(self, params: Params) -> Tensor:
        """Item vectors [..., n, d] from the rows of the per-item leaves."""
        ...


@runtime_checkable
class ScorerGradient(Protocol):
    """A scorer that knows its own gradient. Optional: without it autograd finds it, more slowly."""

    def gradient(self, params: Params, items: Tensor, slope: Tensor, wanted: Collection[str]) -> Params:
        """Gradients of the wanted leaves, from the slope [..., n] of the loss by the scores."""
        ...

    def item_gradient(self, params: Params, slope: Tensor) -> Tensor:
        """The gradient by the item vectors, [..., n, d]."""
        ...


@runtime_checkable
class ViewGradient(Protocol):
    """A view that knows its own gradient. Optional, like `ScorerGradient`."""

    def gradient(self, params: Params, slope: Tensor, wanted: Collection[str]) -> Params:
        """Gradients of the wanted leaves, from the slope [..., n, d] of the loss by the item vectors."""
        ...


@dataclass(frozen=True)
class Sgd:
    """p ← p − learning_rate · (gradient + reg · p)."""

    learning_rate: float
    reg: float = 0.0


@dataclass(frozen=True)
class Adam:
    """Adam (Kingma & Ba 2015) with its usual constants, started afresh every round."""

    learning_rate: float
    reg: float = 0.0


@dataclass(frozen=True)
class Move:
    """Leaves that take a step together, on the gradient of the same loss."""

    leaves: tuple[str, ...]
    optimizer: Sgd | Adam


@dataclass(frozen=True)
class Stage:
    """Some epochs in which, on every batch, the moves are made one after the other."""

    epochs: int
    moves: tuple[Move, ...]


class Update(Protocol):
    """Which leaves move, in what order."""

    @property
    def label(self) -> str:
        """The choice in a few words."""
        ...

    def stages(self, context: RoundContext) -> tuple[Stage, ...]:
        """The local training of one round; the upload is taken after the last stage."""
        ...


class Aggregate(Protocol):
    """How the server turns uploads into the next shared state."""

    @property
    def label(self) -> str:
        """The choice in a few words."""
        ...

    def combine(self, shared: Params, totals: Totals, context: RoundContext) -> Params:
        """The next shared state."""
        ...


class Wire(Protocol):
    """What happens to an upload on its way."""

    @property
    def label(self) -> str:
        """The choice in a few words."""
        ...


@dataclass(frozen=True)
class Method:
    """Five choices and a config. Knows nothing of engines, data sets or evaluation."""

    name: str
    paper: str
    config: MethodConfig
    scorer: Scorer
    view: View
    update: Update
    aggregate: Aggregate
    wire: Wire

    def __post_init__(self) -> None:
        """Refuse what cannot work, all problems at once."""
        names = [leaf.name for leaf in self.leaves]
        problems = [
            f"leaf {name!r} is declared twice" for name in sorted({n for n in names if names.count(n) > 1})
        ]
        moved = {
            name
            for stage in self.update.stages(self.context(0, 1))
            for move in stage.moves
            for name in move.leaves
        }
        problems += [
            f"the update moves {name!r}, which no part declares" for name in sorted(moved - set(names))
        ]
        problems += [
            f"leaf {leaf.name!r} is uploaded but never trained"
            for leaf in self.leaves
            if leaf.upload and leaf.name not in moved
        ]
        by_name = {leaf.name: leaf for leaf in self.leaves}
        problems += [
            f"the view keeps {name!r}, which is not a shared per-item leaf"
            for name in self.view.keeps
            if name not in by_name or not by_name[name].per_item or by_name[name].home is not Home.SHARED
        ]
        if problems:
            raise ConfigError(f"method {self.name!r} does not fit together: {'; '.join(problems)}")

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        """All leaves of scorer and view."""
        return (*self.scorer.leaves, *self.view.leaves)

    def select(self, *, home: Home | None = None, per_item: bool | None = None) -> tuple[Leaf, ...]:
        """The leaves of one home, per item or not."""
        return tuple(
            leaf
            for leaf in self.leaves
            if (home is None or leaf.home is home) and (per_item is None or leaf.per_item is per_item)
        )

    def context(self, round_: int, n_items: int) -> RoundContext:
        """The context of a round."""
        return RoundContext.of(self.config, round_, n_items)

    def score(self, params: Params) -> Tensor:
        """What is served and evaluated: scores [..., n] of the items whose rows are in `params`."""
        return self.scorer.score(params, self.view.see(params))

    def loss(self, params: Params, batch: Batch) -> Tensor:
        """Binary cross-entropy of the batch, [...]: one loss per client."""
        return binary_cross_entropy(self.score(params), *batch)

    def gradient(self, params: Params, batch: Batch, wanted: Collection[str]) -> tuple[Tensor, Params]:
        """The scores [..., n] of a batch, and the gradients of the wanted leaves.

        The loss's slope by the scores is known, so everything starts there; from there on the parts say their
        gradients where they know them, and autograd finds them where they do not.
        """
        if not (isinstance(self.scorer, ScorerGradient) and isinstance(self.view, ViewGradient)):
            return self._autograd(params, batch, wanted)
        items = self.view.see(params)
        scores = self.scorer.score(params, items)
        slope = binary_cross_entropy_slope(scores, *batch)
        found = self.scorer.gradient(params, items, slope, wanted)
        if len(found) < len(wanted):
            found |= self.view.gradient(params, self.scorer.item_gradient(params, slope), wanted)
        return scores, found

    def _autograd(self, params: Params, batch: Batch, wanted: Collection[str]) -> tuple[Tensor, Params]:
        moving = {name: params[name].detach().requires_grad_() for name in wanted}
        scores = self.score(params | moving)
        slope = binary_cross_entropy_slope(scores.detach(), *batch)
        found = torch.autograd.grad(scores, list(moving.values()), slope)
        return scores.detach(), dict(zip(moving, found, strict=True))

    @property
    def choices(self) -> dict[str, str]:
        """The five choices in words."""
        return {
            "scorer": self.scorer.label,
            "view": self.view.label,
            "update": self.update.label,
            "aggregate": self.aggregate.label,
            "wire": self.wire.label,
        }
