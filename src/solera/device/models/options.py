"""Options of a bundle's method, as far as they matter for scores.

What trains a method reads all of them. An unknown option may change what scores are, and is refused.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from solera.core.context import Decays
from solera.core.types import Frozen
from solera.math.fading import Timing

PLUGINS = frozenset({"server-optimizer", "robust", "popular-negatives"})  # those that do not change scores


class Options(Frozen):
    """Those of one method."""

    of_training: ClassVar[frozenset[str]]  # those that do not matter here

    @model_validator(mode="before")
    @classmethod
    def _for_scores(cls, given: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in given.items() if name not in cls.of_training}


_ATTRIBUTES = frozenset({"source_attributes", "target_attributes", "cold_neighbours"})
_ROUNDS = frozenset({"learning_rate", "reg", "local_epochs", "batch_size", "negatives", "clients_per_round"})


class EaseOptions(Options):
    """Those of `fedease`."""

    of_training = _ATTRIBUTES | {"reg", "sketch", "newest", "least_clients"}
    recency: float = Field(default=1.0, gt=0, le=1)
    neighbours: int = Field(default=0, ge=0)
    decay_days: float = Field(default=0.0, ge=0)

    @property
    def decays(self) -> tuple[float, ...]:
        """That of the only channel."""
        return (self.recency,)

    @property
    def timing(self) -> Timing | None:
        """How memories fade by days, if they do."""
        return Timing(self.decay_days) if self.decay_days else None


class SlistOptions(Options):
    """Those of `fedslist`."""

    of_training = _ATTRIBUTES | {
        "horizon", "horizon_decay", "ridge", "popularity_discount", "compact", "popularity_prior",
        "least_clients", "newest",
    }  # fmt: skip
    decays: Decays = (0.6, 0.95)
    neighbours: int = Field(default=0, ge=0)
    decay_days: float = Field(default=0.0, ge=0)
    least_weight: float = Field(default=0.0, ge=0, lt=1)
    until_next: bool = False

    @property
    def timing(self) -> Timing | None:
        """How memories fade by days, if they do."""
        return Timing(self.decay_days, self.least_weight, self.until_next) if self.decay_days else None


class HistOptions(Options):
    """Those of `fedhist`."""

    of_training = _ROUNDS | {  # the last of them of plug-ins, which change what a server does
        "server_optimizer", "server_learning_rate", "popularity_power",
        "robust", "bound", "trim", "over", "suspected", "nodes", "groups",
    }  # fmt: skip
    embedding_size: int = Field(default=32, ge=1)
    decays: Decays = (0.6, 0.95)


class SASRecOptions(Options):
    """Those of `fedsasrec`."""

    of_training = _ROUNDS | {"warmup", "dropout"}
    embedding_size: int = Field(default=64, ge=1)
    block: Literal["sasrec", "ligr", "hstu"] = "sasrec"
    layers: int = Field(default=2, ge=1)
    heads: int = Field(default=2, ge=1)
    max_length: int = Field(default=200, ge=1)

    @model_validator(mode="after")
    def _whole_heads(self) -> Self:
        if self.embedding_size % self.heads:
            raise ValueError(f"{self.heads} heads do not divide embedding_size={self.embedding_size}")
        return self
