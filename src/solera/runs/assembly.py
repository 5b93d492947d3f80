"""Build a run's settings from the given options, for the command line and the Python interface.

Both use this module, so that they take the same options, fill in the same defaults and report the same
errors.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal

from pydantic import ValidationError

from solera.core.errors import ConfigError
from solera.dp.laplace import PaperLaplace
from solera.dp.settings import DP
from solera.evaluate import get
from solera.methods import find
from solera.runs.config import RunConfig, usual_rounds
from solera.runs.presets import Preset
from solera.runs.presets import preset as find_preset

Kind = Literal["method", "baseline"]
NO_PATIENCE = 0


def run_config(
    method: str | None,
    dataset: str | None,
    *,
    preset: str | None = None,
    plugins: Collection[str] = (),
    added: Collection[str] = (),
    options: Mapping[str, Any] | None = None,
    protocol: str | None = None,
    rounds: int | None = None,
    patience: int | None = None,
    evaluate_every: int | None = None,
    dp: str | None = None,
    wire: str | None = None,
    min_interactions: int | None = None,
    columns: Mapping[str, str] | None = None,
    **settings: Any,
) -> RunConfig:
    """The settings of a run, from a preset and the given options. Given options override the preset's.

    `added` are plug-ins in addition to the preset's own. A patience of 0 means none, even with a preset.
    """
    chosen = find_preset(preset) if preset else None
    named = chosen_names(chosen, "method", method, dataset, list(plugins))
    named["plugins"] += [plugin for plugin in added if plugin not in named["plugins"]]
    taken = dict(chosen.options if chosen else {}) | dict(options or {})
    protocol = protocol or (chosen.protocol if chosen else "strict")
    get(protocol)
    built = find(named["method"], taken, named["plugins"])
    if chosen:
        dp, wire = dp or chosen.dp, wire or chosen.wire
        min_interactions = chosen.min_interactions if min_interactions is None else min_interactions
        columns = columns or chosen.columns
        if settings.get("evaluate_users") is None:
            settings["evaluate_users"] = chosen.evaluate_users
    if rounds is None:
        rounds = chosen.rounds if chosen and chosen.rounds else usual_rounds(built)
    if patience is None and chosen:
        patience = chosen.patience
    content = {
        **named,
        "options": taken,
        "protocol": protocol,
        "rounds": rounds,
        "patience": patience or None,
        "evaluate_every": evaluate_every or (chosen.evaluate_every if chosen else 1),
        "min_interactions": min_interactions,
        "columns": dict(columns) if columns else None,
        "dp": DP.parse(dp) if dp else None,
        "wire": PaperLaplace.parse(wire) if wire else None,
        **settings,
    }
    try:
        config = RunConfig.model_validate(content)
    except ValidationError as error:
        raise _in_words(error) from None
    return config.resolved()


def chosen_names(
    chosen: Preset | None, kind: Kind, name: str | None, dataset: str | None, plugins: list[str]
) -> dict[str, Any]:
    """The names of method and data set, from the preset or as given. If both are given, they must agree."""
    command, example = {"method": ("train", "fedmf"), "baseline": ("baseline", "ease")}[kind]
    if chosen is None:
        if name is None or dataset is None:
            raise ConfigError(
                f"the {kind if name is None else 'data set'} is missing",
                f"for example: solera {command} {example} --data ml-100k; or give a --preset",
            )
        return {kind: name, "dataset": dataset, "plugins": plugins}
    if getattr(chosen, kind) is None:
        other_kind, other = ("baseline", "baseline") if kind == "method" else ("method", "train")
        raise ConfigError(
            f"preset {chosen.name!r} is for a {other_kind}, not for a {kind}",
            f"use `solera {other} --preset {chosen.name}`",
        )
    named = {kind: getattr(chosen, kind), "dataset": chosen.dataset, "plugins": list(chosen.plugins)}
    words = {
        kind: (f"the {kind}", name),
        "dataset": ("--data", dataset),
        "plugins": ("--with", plugins or None),
    }
    for key, (option, value) in words.items():
        if value is not None and value != named[key]:
            raise ConfigError(
                f"preset {chosen.name!r} has the {key} {named[key]!r}, not {value!r}",
                f"omit {option} or the preset",
            )
    return named


def _in_words(error: ValidationError) -> ConfigError:
    """Convert the first validation error to a `ConfigError`."""
    fault = error.errors()[0]
    name = ".".join(map(str, fault["loc"]))
    said = str(fault["msg"]).removeprefix("Input should be ").removeprefix("Value error, ")
    return ConfigError(f"{name} is {fault['input']!r}, but should be {said}", f"give --{name} another value")
