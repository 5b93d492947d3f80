"""All methods and plug-ins, one file each. To add one, write the file and name it here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError, create_model

from solera.core.context import MethodConfig
from solera.core.errors import ConfigError, closest
from solera.core.method import Method
from solera.methods.colr import CoLRConfig, colr
from solera.methods.elastic_merge import ElasticMergeConfig, elastic_merge
from solera.methods.fedem import (
    FedEMConfig,
    FedEMDynamicConfig,
    FedEMStaticConfig,
    SimilarityConfig,
    fedem,
    fedem_dm,
    fedem_sm,
    fedem_sr,
)
from solera.methods.fedfast import FedFastConfig, fedfast
from solera.methods.fedmf import FedMFConfig, fedmf
from solera.methods.fedncf import FedNCFConfig, fedncf
from solera.methods.fedrap import (
    FedRAPConfig,
    FedRAPOneNormConfig,
    FedRAPOneTableConfig,
    fedrap,
    fedrap_c,
    fedrap_d,
    fedrap_l2,
    fedrap_no,
)
from solera.methods.fedrecon import FedReconConfig, fedrecon
from solera.methods.gpfedrec import GPFedRecConfig, gpfedrec
from solera.methods.local import LocalConfig, local
from solera.methods.perfedrec import PerFedRecConfig, perfedrec
from solera.methods.pfedclr import (
    FullBufferConfig,
    LowRankConfig,
    PFedCLRConfig,
    low_rank,
    pfedclr,
    pfedclr_af,
    pfedclr_cf,
)
from solera.methods.pfedgraph import PFedGraphConfig, pfedgraph
from solera.methods.pfedrec import DualPersonalizationConfig, PFedRecConfig, dual_personalization, pfedrec
from solera.methods.plgc import (
    MixingConfig,
    PLGCConfig,
    PLGCPlugConfig,
    local_global_mixing,
    plgc,
    plgc_dlgm,
    plgc_err,
)


class Recipe(NamedTuple):
    """A method's config class and the function that puts it together."""

    config: type[MethodConfig]
    build: Callable[[Any], Method]


METHODS: dict[str, Recipe] = {
    "colr": Recipe(CoLRConfig, colr),
    "fedem": Recipe(FedEMConfig, fedem),
    "fedem-dm": Recipe(FedEMDynamicConfig, fedem_dm),
    "fedem-sm": Recipe(FedEMStaticConfig, fedem_sm),
    "fedem-sr": Recipe(SimilarityConfig, fedem_sr),
    "fedfast": Recipe(FedFastConfig, fedfast),
    "fedmf": Recipe(FedMFConfig, fedmf),
    "fedncf": Recipe(FedNCFConfig, fedncf),
    "fedrap": Recipe(FedRAPConfig, fedrap),
    "fedrap-c": Recipe(FedRAPOneTableConfig, fedrap_c),
    "fedrap-d": Recipe(FedRAPOneTableConfig, fedrap_d),
    "fedrap-l2": Recipe(FedRAPOneNormConfig, fedrap_l2),
    "fedrap-no": Recipe(FedRAPOneNormConfig, fedrap_no),
    "fedrecon": Recipe(FedReconConfig, fedrecon),
    "gpfedrec": Recipe(GPFedRecConfig, gpfedrec),
    "local": Recipe(LocalConfig, local),
    "perfedrec": Recipe(PerFedRecConfig, perfedrec),
    "pfedclr": Recipe(PFedCLRConfig, pfedclr),
    "pfedclr-af": Recipe(FullBufferConfig, pfedclr_af),
    "pfedclr-cf": Recipe(FullBufferConfig, pfedclr_cf),
    "pfedgraph": Recipe(PFedGraphConfig, pfedgraph),
    "pfedrec": Recipe(PFedRecConfig, pfedrec),
    "plgc": Recipe(PLGCConfig, plgc),
    "plgc-dlgm": Recipe(MixingConfig, plgc_dlgm),
    "plgc-err": Recipe(PLGCConfig, plgc_err),
}


class Plugin(NamedTuple):
    """What can be added to any method it fits: options of its own, and the change it makes."""

    about: str
    config: type[BaseModel]
    apply: Callable[[Method, Any], Method]


# In the order in which they are applied: those that give clients a local table come last.
PLUGINS: dict[str, Plugin] = {
    "dual-personalization": Plugin(
        "personal scorer, items fine-tuned after it and kept (PFedRec)",
        DualPersonalizationConfig,
        dual_personalization,
    ),
    "low-rank": Plugin(
        "items, upload, then the rest with a low-rank personal buffer (PFedCLR)", LowRankConfig, low_rank
    ),
    "elastic-merge": Plugin(
        "local table, the shared one merged in item by item (FedEM)", ElasticMergeConfig, elastic_merge
    ),
    "plgc": Plugin(
        "local table mixed with the shared one by NTK traces, less redundant (PLGC)",
        PLGCPlugConfig,
        local_global_mixing,
    ),
}


def build(name: str, options: Mapping[str, Any] | None = None, plugins: Collection[str] = ()) -> Method:
    """The method of that name with some plug-ins; every wrong option is named at once."""
    for kind, given, known in (("method", [name], METHODS), ("plug-in", plugins, PLUGINS)):
        for unknown in set(given) - set(known):
            raise ConfigError(f"unknown {kind} {unknown!r}", closest(unknown, list(known)))
    recipe = METHODS[name]
    chosen = [plugin for plugin in PLUGINS if plugin in plugins]
    full_name = "+".join([name, *chosen])
    config_class = _config_class(recipe.config, chosen)
    fields = config_class.model_fields
    unknown_options = [key for key in options or {} if key not in fields]
    if unknown_options:
        hint = closest(unknown_options[0], list(fields))
        wrong = ", ".join(map(repr, unknown_options))
        raise ConfigError(f"method {full_name!r} has no option {wrong}", hint)
    try:
        config = config_class.model_validate(dict(options or {}))
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc'][:1]))}: {e['msg']}" for e in error.errors())
        hint = f"solera methods {' --with '.join([name, *chosen])} shows its options"
        raise ConfigError(f"method {full_name!r}: {wrong}", hint) from None
    method = recipe.build(config)
    for plugin in chosen:
        method = PLUGINS[plugin].apply(method, config)
    return replace(method, name=full_name)


def _config_class(method: type[MethodConfig], plugins: Collection[str]) -> type[MethodConfig]:
    """The options of a method and its plug-ins; where both know one, the method's default holds."""
    fields = {
        name: (field.annotation, field)
        for plugin in plugins
        for name, field in PLUGINS[plugin].config.model_fields.items()
        if name not in method.model_fields
    }
    return create_model(method.__name__, __base__=method, **fields) if fields else method  # type: ignore[call-overload]
