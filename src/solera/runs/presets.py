"""Settings by name: published rows, the best from equal tuning, rows of papers; and those a user adds."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from solera.baselines import BASELINES, configure
from solera.core.errors import ConfigError, closest
from solera.runs.paper_rows import row_preset, row_presets
from solera.runs.preset import Preset, presets
from solera.runs.settings import SETTINGS, BaselineConfig, RunConfig, usual_rounds

__all__ = ["Preset", "preset", "presets", "run_settings"]

Kind = Literal["method", "baseline"]


def preset(name: str) -> Preset:
    """The preset with this name, of a row of a paper, or in a .toml file.

    A row is named as in paper:fedmf@pfedrec/ml-100k: FedMF as PFedRec's paper compares with it.
    """
    if name.endswith(".toml"):
        return _in_file(Path(name))
    found = presets().get(name) or (row_preset(name) if "@" in name else None)
    if found is None:
        hint = (
            closest(name, row_presets())
            if "@" in name
            else f"{closest(name, list(presets()))}; solera methods --presets lists them"
        )
        raise ConfigError(f"unknown preset {name!r}", hint)
    return found


def _in_file(path: Path) -> Preset:
    hint = "give a file like the best.toml of `solera sweep`"
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
        if len(found) != 1:
            raise ConfigError(f"{path} contains {len(found)} presets instead of one", hint)
        ((name, entry),) = found.items()
        return Preset(name=name, **entry)
    except OSError as error:
        raise ConfigError(f"the preset {path} cannot be read: {error.strerror}", hint) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, TypeError) as error:
        raise ConfigError(f"{path} is not a preset: {error}", hint) from None
    except ValidationError as error:
        wrong = error.errors()[0]
        where = ".".join(map(str, wrong["loc"]))
        raise ConfigError(f"{path} is not a preset: {where}: {wrong['msg']}", hint) from None


_find = preset


def run_settings(
    method: str | None = None,
    dataset: str | None = None,
    *,
    preset: str | None = None,
    plugins: Collection[str] = (),
    added: Collection[str] = (),
    options: Mapping[str, Any] | None = None,
    resolve: bool = True,
    **settings: Any,
) -> RunConfig:
    """The settings of a run, from a preset and those given, which override it; None counts as not given.

    `added` are plug-ins in addition to the preset's own. A patience of 0 means none, even with a preset.
    """
    chosen = _find(preset) if preset else None
    named = chosen_names(chosen, "method", method, dataset, list(plugins))
    named["plugins"] += [plugin for plugin in added if plugin not in named["plugins"]]
    given = {key: value for key, value in settings.items() if value is not None}
    content = (chosen.settings if chosen else {}) | given | named
    content["options"] = dict(chosen.options if chosen else {}) | dict(options or {})
    try:
        config = RunConfig.model_validate(content)
    except ValidationError as error:
        raise _in_words(error) from None
    if "rounds" not in content:
        config = config.model_copy(update={"rounds": usual_rounds(config.built)})
    return config.resolved() if resolve else config


def methods_and_baselines(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """The methods and presets among names, and the centralized baselines: the usual ones if none is named."""
    listed = list(names)
    baselines = [name for name in listed if name in BASELINES]
    methods = [name for name in listed if name not in BASELINES]
    if baselines or any(":" in name and _find(name).baseline for name in methods):
        return methods, baselines
    return methods, ["popularity", "ease"]


def baseline_settings(
    baseline: str | None = None,
    dataset: str | None = None,
    *,
    preset: str | None = None,
    options: Mapping[str, Any] | None = None,
    **settings: Any,
) -> BaselineConfig:
    """The settings of a baseline, from a preset and those given, which override it, with all options."""
    chosen = _find(preset) if preset else None
    named = chosen_names(chosen, "baseline", baseline, dataset, [])
    del named["plugins"]
    given = {key: value for key, value in settings.items() if value is not None}
    taken = dict(chosen.options if chosen else {}) | dict(options or {})
    content = named | given | {"options": configure(named["baseline"], taken).model_dump(mode="json")}
    try:
        return BaselineConfig.model_validate(content)
    except ValidationError as error:
        raise _in_words(error) from None


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
        "plugins": ("--plugin", plugins or None),
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
    if fault["type"] == "extra_forbidden":
        return ConfigError(f"there is no setting {name!r}", closest(name, list(SETTINGS)))
    said = str(fault["msg"]).removeprefix("Input should be ").removeprefix("Value error, ")
    what = f"{name} is {fault['input']!r}, but should be {said}"
    return ConfigError(what, f"give --{name.replace('_', '-')} another value")
