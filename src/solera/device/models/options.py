"""Options of a bundle's method, as far as they matter for scores.

What trains a method reads all of them. An unknown option may change what scores are, and is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

from solera.device.bundle import Fields
from solera.math.fading import Timing

PLUGINS = frozenset({"server-optimizer", "robust", "popular-negatives"})  # those that do not change scores


@dataclass(frozen=True)
class Options:
    """Those of one method."""

    of_training: ClassVar[frozenset[str]]  # those that do not matter here

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Self:
        """Those of a manifest. A ValueError says which is wrong."""
        left = Fields({name: value for name, value in given.items() if name not in cls.of_training})
        made = cls(
            **{each.name: left.take(each.name, type(each.default), each.default) for each in fields(cls)}
        )
        left.end()
        return made


def _check(options: Options, **fits: bool) -> None:
    for name, is_right in fits.items():
        if not is_right:
            raise ValueError(f"{name} is {getattr(options, name)}")


def _are_decays(decays: tuple[Any, ...]) -> bool:
    """0 remembers only the last item, 1 forgets nothing."""
    return bool(decays) and all(isinstance(each, (int, float)) and 0 <= each <= 1 for each in decays)


_ATTRIBUTES = frozenset({"source_attributes", "target_attributes", "cold_neighbours"})
_ROUNDS = frozenset({"learning_rate", "reg", "local_epochs", "batch_size", "negatives", "clients_per_round"})


@dataclass(frozen=True)
class EaseOptions(Options):
    """Those of `fedease`."""

    of_training = _ATTRIBUTES | {"reg", "sketch", "newest", "least_clients"}
    recency: float = 1.0
    neighbours: int = 0
    decay_days: float = 0.0

    def __post_init__(self) -> None:
        """Refuse values that no method takes."""
        _check(
            self,
            recency=0 < self.recency <= 1,
            neighbours=self.neighbours >= 0,
            decay_days=self.decay_days >= 0,
        )

    @property
    def decays(self) -> tuple[float, ...]:
        """That of the only channel."""
        return (self.recency,)

    @property
    def timing(self) -> Timing | None:
        """How memories fade by days, if they do."""
        return Timing(self.decay_days) if self.decay_days else None


@dataclass(frozen=True)
class SlistOptions(Options):
    """Those of `fedslist`."""

    of_training = _ATTRIBUTES | {
        "horizon", "horizon_decay", "ridge", "popularity_discount", "compact", "popularity_prior",
        "least_clients", "newest",
    }  # fmt: skip
    decays: tuple[float, ...] = (0.6, 0.95)
    neighbours: int = 0
    decay_days: float = 0.0
    least_weight: float = 0.0
    until_next: bool = False

    def __post_init__(self) -> None:
        """Refuse values that no method takes."""
        _check(
            self,
            decays=_are_decays(self.decays),
            neighbours=self.neighbours >= 0,
            decay_days=self.decay_days >= 0,
            least_weight=0 <= self.least_weight < 1,
        )

    @property
    def timing(self) -> Timing | None:
        """How memories fade by days, if they do."""
        return Timing(self.decay_days, self.least_weight, self.until_next) if self.decay_days else None


@dataclass(frozen=True)
class HistOptions(Options):
    """Those of `fedhist`."""

    of_training = _ROUNDS | {  # the last of them of plug-ins, which change what a server does
        "server_optimizer", "server_learning_rate", "popularity_power",
        "robust", "bound", "trim", "over", "suspected", "nodes", "groups",
    }  # fmt: skip
    embedding_size: int = 32
    decays: tuple[float, ...] = (0.6, 0.95)

    def __post_init__(self) -> None:
        """Refuse values that no method takes."""
        _check(self, embedding_size=self.embedding_size >= 1, decays=_are_decays(self.decays))


@dataclass(frozen=True)
class SASRecOptions(Options):
    """Those of `fedsasrec`."""

    of_training = _ROUNDS | {"warmup", "dropout"}
    embedding_size: int = 64
    block: str = "sasrec"
    layers: int = 2
    heads: int = 2
    max_length: int = 200

    def __post_init__(self) -> None:
        """Refuse values that no method takes."""
        _check(
            self,
            block=self.block in ("sasrec", "ligr", "hstu"),
            layers=self.layers >= 1,
            heads=self.heads >= 1 and self.embedding_size % self.heads == 0,
            embedding_size=self.embedding_size >= 1,
            max_length=self.max_length >= 1,
        )
