"""Centralized baselines, one file each: the accuracy possible if all users' histories were collected.

To add one, write the file and name it here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor

from solera.baselines.centrap import CentRAP, CentRAPConfig
from solera.baselines.counter import Counter, CounterConfig
from solera.baselines.ease import Ease, EaseConfig
from solera.baselines.esasrec import ESASRec, ESASRecConfig
from solera.baselines.hstu import HSTU, HSTUConfig
from solera.baselines.ials import IALS, IALSConfig
from solera.baselines.lightgcn import LightGCN, LightGCNConfig
from solera.baselines.mf import MF, MFConfig
from solera.baselines.ncf import NCF, NCFConfig
from solera.baselines.popularity import Popularity
from solera.baselines.sasrec import SASRec, SASRecConfig
from solera.baselines.slist import SLIST, SLISTConfig
from solera.baselines.training import Epoch, OnEpoch
from solera.core.errors import ConfigError, closest, wrong_options
from solera.core.types import Ints
from solera.data.interactions import Split
from solera.data.ragged import Ragged


class Baseline(Protocol):
    """A fitted baseline."""

    def scores(self, users: Ints, history: Ragged) -> Tensor:
        """Scores [len(users), n_items]. `history` is what each user of the data has at that time."""


@runtime_checkable
class Refreshing(Protocol):
    """A fitted baseline whose users have trained parameters instead of being scored by their histories."""

    def refreshed(self, split: Split, epochs: int) -> Baseline:
        """The model with users' parameters trained on, all others fixed, for the training items of a split.

        These are the items it was trained on and newer ones. The model itself does not change.
        """


@runtime_checkable
class OnGraph(Protocol):
    """A fitted baseline that scores with parameters spread over a graph of training items."""

    def on_graph_of(self, split: Split) -> Baseline:
        """The same parameters on the graph of a split's training items. The model itself does not change."""


class Recipe(NamedTuple):
    """A baseline's config class and the function that fits it to a split with a seed."""

    config: type[BaseModel]
    fit: Callable[[Split, Any, int, OnEpoch | None], Baseline]


class NoOptions(BaseModel):
    """Settings of a baseline without options."""

    model_config = ConfigDict(frozen=True, extra="forbid")


BASELINES: dict[str, Recipe] = {
    "popularity": Recipe(NoOptions, lambda split, *_: Popularity.fit(split)),
    "counter": Recipe(CounterConfig, Counter.fit),
    "ease": Recipe(EaseConfig, lambda split, config, *_: Ease.fit(split, config)),
    "slist": Recipe(SLISTConfig, lambda split, config, *_: SLIST.fit(split, config)),
    "ials": Recipe(IALSConfig, IALS.fit),
    "mf": Recipe(MFConfig, MF.fit),
    "ncf": Recipe(NCFConfig, NCF.fit),
    "lightgcn": Recipe(LightGCNConfig, LightGCN.fit),
    "centrap": Recipe(CentRAPConfig, CentRAP.fit),
    "sasrec": Recipe(SASRecConfig, SASRec.fit),
    "esasrec": Recipe(ESASRecConfig, ESASRec.fit),
    "hstu": Recipe(HSTUConfig, HSTU.fit),
}


def configure(name: str, options: Mapping[str, Any] | None = None) -> BaseModel:
    """The settings of a baseline. All wrong options are reported at once."""
    if name not in BASELINES:
        raise ConfigError(f"unknown baseline {name!r}", closest(name, list(BASELINES)))
    config = BASELINES[name].config
    try:
        return config.model_validate(dict(options or {}))
    except ValidationError as error:
        known = ", ".join(f"{key}={_shown(value)}" for key, value in config())
        hint = f"its options and defaults: {known}" if known else "it has no options: leave -o out"
        raise ConfigError(f"baseline {name!r}: {wrong_options(error)}", hint) from None


def _shown(value: Any) -> str:
    """Format a value for the command line."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


__all__ = [
    "BASELINES",
    "HSTU",
    "IALS",
    "MF",
    "NCF",
    "SLIST",
    "Baseline",
    "CentRAP",
    "CentRAPConfig",
    "Counter",
    "CounterConfig",
    "ESASRec",
    "ESASRecConfig",
    "Ease",
    "EaseConfig",
    "Epoch",
    "HSTUConfig",
    "IALSConfig",
    "LightGCN",
    "LightGCNConfig",
    "MFConfig",
    "NCFConfig",
    "NoOptions",
    "OnEpoch",
    "OnGraph",
    "Popularity",
    "Recipe",
    "Refreshing",
    "SASRec",
    "SASRecConfig",
    "SLISTConfig",
    "configure",
]
