"""Centralized baselines: the accuracy possible if all users' histories were collected.

To add one, write the file and name it here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from solera.baselines.centrap import CentRAP, CentRAPConfig
from solera.baselines.counter import Counter, CounterConfig, Popularity
from solera.baselines.ease import Ease, EaseConfig
from solera.baselines.ials import IALS, IALSConfig
from solera.baselines.lightgcn import LightGCN, LightGCNConfig
from solera.baselines.mf import MF, MFConfig
from solera.baselines.ncf import NCF, NCFConfig
from solera.baselines.slist import SLIST, SLISTConfig
from solera.baselines.training import Baseline, Epoch, OnEpoch
from solera.baselines.transformers import ESASRecConfig, HSTUConfig, SASRecConfig, SequenceModel
from solera.core.errors import ConfigError, closest, wrong_options
from solera.core.frozen import Frozen
from solera.data.interactions import Split


class Recipe(NamedTuple):
    """A baseline's config class and the function that fits it to a split with a seed."""

    config: type[BaseModel]
    fit: Callable[[Split, Any, int, OnEpoch | None], Baseline]


class NoOptions(Frozen):
    """Settings of a baseline without options."""


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
    "sasrec": Recipe(SASRecConfig, SequenceModel.fit),
    "esasrec": Recipe(ESASRecConfig, SequenceModel.fit),
    "hstu": Recipe(HSTUConfig, SequenceModel.fit),
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


__all__ = ["BASELINES", "SLIST", "Baseline", "Counter", "Ease", "Epoch", "OnEpoch", "Popularity", "configure"]
