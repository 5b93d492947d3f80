"""All methods, one file each. To add one, write the file and name it here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from solera.core.context import MethodConfig
from solera.core.errors import ConfigError, closest
from solera.core.method import Method
from solera.methods.fedem import FedEMConfig, FedEMStaticConfig, fedem, fedem_dm, fedem_sm, fedem_sr
from solera.methods.fedmf import FedMFConfig, fedmf
from solera.methods.fedncf import FedNCFConfig, fedncf
from solera.methods.fedrap import FedRAPConfig, fedrap, fedrap_c, fedrap_d
from solera.methods.local import LocalConfig, local
from solera.methods.pfedclr import PFedCLRConfig, pfedclr, pfedclr_af, pfedclr_cf
from solera.methods.pfedrec import PFedRecConfig, pfedrec


class Recipe(NamedTuple):
    """A method's config class and the function that puts it together."""

    config: type[MethodConfig]
    build: Callable[[Any], Method]


METHODS: dict[str, Recipe] = {
    "fedem": Recipe(FedEMConfig, fedem),
    "fedem-dm": Recipe(FedEMConfig, fedem_dm),
    "fedem-sm": Recipe(FedEMStaticConfig, fedem_sm),
    "fedem-sr": Recipe(FedEMConfig, fedem_sr),
    "fedmf": Recipe(FedMFConfig, fedmf),
    "fedncf": Recipe(FedNCFConfig, fedncf),
    "fedrap": Recipe(FedRAPConfig, fedrap),
    "fedrap-c": Recipe(FedRAPConfig, fedrap_c),
    "fedrap-d": Recipe(FedRAPConfig, fedrap_d),
    "local": Recipe(LocalConfig, local),
    "pfedclr": Recipe(PFedCLRConfig, pfedclr),
    "pfedclr-af": Recipe(PFedCLRConfig, pfedclr_af),
    "pfedclr-cf": Recipe(PFedCLRConfig, pfedclr_cf),
    "pfedrec": Recipe(PFedRecConfig, pfedrec),
}


def build(name: str, options: Mapping[str, Any] | None = None) -> Method:
    """The method of that name; every wrong option is named at once."""
    if name not in METHODS:
        raise ConfigError(f"unknown method {name!r}", closest(name, list(METHODS)))
    recipe = METHODS[name]
    fields = recipe.config.model_fields
    unknown = [key for key in options or {} if key not in fields]
    if unknown:
        hint = closest(unknown[0], list(fields))
        raise ConfigError(f"method {name!r} has no option {', '.join(map(repr, unknown))}", hint)
    try:
        config = recipe.config.model_validate(dict(options or {}))
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc'][:1]))}: {e['msg']}" for e in error.errors())
        raise ConfigError(f"method {name!r}: {wrong}", f"solera methods {name} shows its options") from None
    return recipe.build(config)
