"""All methods and plug-ins, one file each. To add one, write the file and name it here, or register it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError, create_model

from solera.core.closed_form import AnyMethod, ClosedForm, ClosedFormConfig
from solera.core.context import MethodConfig
from solera.core.errors import ConfigError, closest, wrong_options
from solera.core.extensions import import_extensions
from solera.core.method import Method
from solera.methods.additive import AdditiveConfig, additive
from solera.methods.colr import CoLRConfig, colr
from solera.methods.fedcia import FedCIAConfig, fedcia
from solera.methods.fedease import FedEASEConfig, fedease
from solera.methods.fedem import (
    ElasticMergePlugConfig,
    FedEMConfig,
    StaticMergeConfig,
    elastic_merge,
    fedem,
    static_merge,
)
from solera.methods.fedfast import FedFastConfig, fedfast
from solera.methods.fedhist import FedHistConfig, fedhist
from solera.methods.fedmf import FedMFConfig, fedmf
from solera.methods.fedncf import FedNCFConfig, fedncf
from solera.methods.fedrap import FedRAPConfig, fedrap
from solera.methods.fedrecon import FedReconConfig, fedrecon
from solera.methods.fedsasrec import FedSASRecConfig, fedsasrec
from solera.methods.fedslist import FedSLISTConfig, fedslist
from solera.methods.gpfedrec import GPFedRecConfig, gpfedrec
from solera.methods.local import LocalConfig, local
from solera.methods.perfedrec import PerFedRecConfig, perfedrec
from solera.methods.pfedclr import LowRankConfig, PFedCLRConfig, low_rank, pfedclr
from solera.methods.pfedgraph import PFedGraphConfig, pfedgraph
from solera.methods.pfedrec import DualPersonalizationConfig, PFedRecConfig, dual_personalization, pfedrec
from solera.methods.plgc import (
    MixingConfig,
    PLGCConfig,
    PLGCPlugConfig,
    local_global_mixing,
    mixing_backbone,
    plgc,
)
from solera.methods.robust import RobustConfig, robust
from solera.methods.server_side import (
    PopularNegativesConfig,
    RowMeanConfig,
    ServerOptimizerConfig,
    popular_negatives,
    row_mean,
    server_optimizer,
)

Config = TypeVar("Config", bound=BaseModel)


class Recipe(NamedTuple):
    """A method's config class and the function that builds the method."""

    config: type[MethodConfig]
    build: Callable[[Any], Method]


class ClosedFormRecipe(NamedTuple):
    """A one-round method's config class and the function that builds the method."""

    config: type[ClosedFormConfig]
    build: Callable[[Any], ClosedForm]


METHODS: dict[str, Recipe] = {
    "colr": Recipe(CoLRConfig, colr),
    "fedcia": Recipe(FedCIAConfig, fedcia),
    "fedem": Recipe(FedEMConfig, fedem),
    "fedfast": Recipe(FedFastConfig, fedfast),
    "fedhist": Recipe(FedHistConfig, fedhist),
    "fedmf": Recipe(FedMFConfig, fedmf),
    "fedncf": Recipe(FedNCFConfig, fedncf),
    "fedrap": Recipe(FedRAPConfig, fedrap),
    "fedrecon": Recipe(FedReconConfig, fedrecon),
    "fedsasrec": Recipe(FedSASRecConfig, fedsasrec),
    "gpfedrec": Recipe(GPFedRecConfig, gpfedrec),
    "local": Recipe(LocalConfig, local),
    "perfedrec": Recipe(PerFedRecConfig, perfedrec),
    "pfedclr": Recipe(PFedCLRConfig, pfedclr),
    "pfedgraph": Recipe(PFedGraphConfig, pfedgraph),
    "pfedrec": Recipe(PFedRecConfig, pfedrec),
    "plgc": Recipe(PLGCConfig, plgc),
}


# Former names of ablations, which are now options of their method. Saved runs may still have them.
ALIASES: dict[str, tuple[str, dict[str, Any]]] = {
    "fedem-dm": ("fedem", {"merge": "client"}),
    "fedem-sm": ("fedem", {"merge": "fixed"}),
    "fedem-sr": ("fedem", {"merge": "replace"}),
    "fedrap-c": ("fedrap", {"tables": "shared"}),
    "fedrap-d": ("fedrap", {"tables": "personal"}),
    "fedrap-l2": ("fedrap", {"norm": "l2"}),
    "fedrap-no": ("fedrap", {"norm": "none"}),
    "pfedclr-af": ("pfedclr", {"buffer": "full", "calibrated": False}),
    "pfedclr-cf": ("pfedclr", {"buffer": "full"}),
    "plgc-dlgm": ("plgc", {"redundancy": 0.0}),
    "plgc-err": ("plgc", {"mixing": False}),
}


class Plugin(NamedTuple):
    """An extension for any method it fits: its own options, and the change it makes."""

    about: str
    config: type[BaseModel]
    apply: Callable[[Method, Any], Method]


# In the order in which they are applied. Plug-ins that give clients a local table come after those that
# change views and updates. Those of the server come last, because they act on what is finally sent.
PLUGINS: dict[str, Plugin] = {
    "dual-personalization": Plugin(
        "personal scorer, items fine-tuned after it and kept (PFedRec)",
        DualPersonalizationConfig,
        dual_personalization,
    ),
    "additive": Plugin(
        "a personal table added to the shared one, without penalties (FedRAP)", AdditiveConfig, additive
    ),
    "low-rank": Plugin(
        "items, upload, then the rest with a low-rank personal buffer (PFedCLR)", LowRankConfig, low_rank
    ),
    "elastic-merge": Plugin(
        "local table, the shared one merged in item by item (FedEM)", ElasticMergePlugConfig, elastic_merge
    ),
    "static-merge": Plugin(
        "local table, the shared one merged in with one weight, from some round on (FedEM)",
        StaticMergeConfig,
        static_merge,
    ),
    "plgc": Plugin(
        "local table mixed with the shared one by NTK traces, less redundant (PLGC)",
        PLGCPlugConfig,
        local_global_mixing,
    ),
    "row-mean": Plugin(
        "an item's row averaged over the clients that touched it (server side)", RowMeanConfig, row_mean
    ),
    "server-optimizer": Plugin(
        "the mean change taken as a gradient by Adam or momentum on the server (server side)",
        ServerOptimizerConfig,
        server_optimizer,
    ),
    "robust": Plugin(
        "no single client believed too much: bounds, trimmed means, Krum (robust)", RobustConfig, robust
    ),
    "popular-negatives": Plugin(
        "training negatives drawn by popularity (server side)", PopularNegativesConfig, popular_negatives
    ),
}


# A method that is another one under a plug-in: FedMF with PLGC is trained as PLGC's paper does it.
UNDER: dict[tuple[str, str], Recipe] = {("fedmf", "plgc"): Recipe(MixingConfig, mixing_backbone)}


# One-round methods. They have no training that a plug-in could change.
ONE_ROUND: dict[str, ClosedFormRecipe] = {
    "fedease": ClosedFormRecipe(FedEASEConfig, fedease),
    "fedslist": ClosedFormRecipe(FedSLISTConfig, fedslist),
}


_BUILT_IN = frozenset((*METHODS, *ONE_ROUND, *ALIASES))


def register_method(name: str, config: type[MethodConfig], build: Callable[[Any], Method]) -> None:
    """Register your own method under a name. Registering the name again replaces it.

    Name a file that does so at its end with `solera --import FILE.py`, or import it.
    """
    if name in _BUILT_IN:
        raise ConfigError(f"{name!r} is one of Solera's own methods", "register yours under another name")
    METHODS[name] = Recipe(config, build)


register = register_method


def names() -> list[str]:
    """The names of all methods."""
    import_extensions("methods")
    return sorted([*METHODS, *ONE_ROUND])


def find(name: str, options: Mapping[str, Any] | None = None, plugins: Collection[str] = ()) -> AnyMethod:
    """Build the method with this name, trained or one-round. All wrong options are reported at once."""
    if name not in ONE_ROUND:
        return build(name, options, plugins)
    if plugins:
        raise ConfigError(
            f"{name!r} cannot be used with {', '.join(map(repr, plugins))}: it is solved in one "
            "round, without training",
            "omit the plug-in, or choose a method of many rounds",
        )
    recipe = ONE_ROUND[name]
    return recipe.build(_configured(name, name, recipe.config, options))


def build(name: str, options: Mapping[str, Any] | None = None, plugins: Collection[str] = ()) -> Method:
    """Build the trained method with this name and some plug-ins. All wrong options are reported at once."""
    asked, (name, fixed) = name, ALIASES.get(name, (name, {}))
    for kind, given, known in (("method", [name], names()), ("plug-in", plugins, list(PLUGINS))):
        for unknown in set(given) - set(known):
            raise ConfigError(f"unknown {kind} {unknown!r}", closest(unknown, known))
    if name in ONE_ROUND:
        raise ConfigError(f"{name!r} needs one round and no training", "choose a method of many rounds")
    chosen = [plugin for plugin in PLUGINS if plugin in plugins]
    recipe = next((UNDER[name, plugin] for plugin in chosen if (name, plugin) in UNDER), METHODS[name])
    full_name = "+".join([asked, *chosen])
    config_class = _config_class(recipe.config, chosen)
    config = _configured(
        full_name, " --plugin ".join([name, *chosen]), config_class, {**(options or {}), **fixed}
    )
    method = recipe.build(config)
    for plugin in chosen:
        method = PLUGINS[plugin].apply(method, config)
    return method if method.name == full_name else replace(method, name=full_name)


def _configured(
    name: str, asked: str, config_class: type[Config], options: Mapping[str, Any] | None
) -> Config:
    fields = config_class.model_fields
    unknown = [key for key in options or {} if key not in fields]
    if unknown:
        wrong = ", ".join(map(repr, unknown))
        raise ConfigError(f"method {name!r} has no option {wrong}", closest(unknown[0], list(fields)))
    try:
        return config_class.model_validate(dict(options or {}))
    except ValidationError as error:
        hint = f"solera methods {asked} shows its options"
        raise ConfigError(f"method {name!r}: {wrong_options(error)}", hint) from None


def _config_class(method: type[MethodConfig], plugins: Collection[str]) -> type[MethodConfig]:
    """The options of a method and its plug-ins. If both have an option, the method's default holds."""
    fields = {
        name: (field.annotation, field)
        for plugin in plugins
        for name, field in PLUGINS[plugin].config.model_fields.items()
        if name not in method.model_fields
    }
    return create_model(method.__name__, __base__=method, **fields) if fields else method  # type: ignore[call-overload]
