"""Settings by name: published rows, the best from equal tuning, rows of papers; and those a user adds."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, ValidationError, model_serializer, model_validator

from solera.baselines import BASELINES, configure
from solera.core.errors import ConfigError, closest
from solera.core.frozen import Frozen
from solera.runs.settings import SETTINGS, BaselineConfig, RunConfig, usual_rounds


class Preset(Frozen):
    """A run's settings, their source, and the reported metrics."""

    name: str
    method: str | None = None
    baseline: str | None = None  # a centralized baseline instead of a method
    dataset: str
    source: str
    plugins: tuple[str, ...] = ()
    options: dict[str, Any] = Field(default={})
    settings: dict[str, Any]  # of the run, the protocol among them, by the names of `RunConfig`
    published: dict[str, float] = Field(default={})

    @model_validator(mode="before")
    @classmethod
    def _gathered(cls, given: dict[str, Any]) -> dict[str, Any]:
        """A file has the settings beside everything else."""
        settings = {key: value for key in SETTINGS if (value := given.pop(key, None)) is not None}
        return {"settings": settings, **given}

    @model_serializer(mode="wrap")
    def _beside(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = dump(self)
        settings: dict[str, Any] = fields.pop("settings")
        return settings | fields

    @property
    def full_method(self) -> str:
        """The method's name with its plug-ins."""
        return "+".join([self.method or self.baseline or "", *self.plugins])

    @property
    def protocol(self) -> str:
        """The protocol that the figures are of."""
        return str(self.settings["protocol"])

    def config(self, *, protocol: str | None = None, seed: int = 0) -> RunConfig | BaselineConfig:
        """The settings of the preset's run, under its own protocol or another."""
        where: dict[str, Any] = {"dataset": self.dataset, "protocol": protocol or self.protocol, "seed": seed}
        if self.baseline:
            options = configure(self.baseline, self.options).model_dump(mode="json")
            known = {key: self.settings[key] for key in BaselineConfig.model_fields if key in self.settings}
            return BaselineConfig.model_validate(
                known | where | {"baseline": self.baseline, "options": options}
            )
        named = {"method": self.method, "plugins": self.plugins, "options": self.options}
        return RunConfig.model_validate(self.settings | named | where).resolved()


@cache
def presets() -> dict[str, Preset]:
    """All presets by name. Of two files with the same the later counts: equal tuning before other choices."""
    found: dict[str, Preset] = {}
    for file in ("presets.toml", "chosen.toml", "tuned.toml", "transformers.toml"):
        text = files("solera.runs").joinpath(file).read_text(encoding="utf-8")
        found |= {
            name: Preset.model_validate({"name": name, **entry})
            for name, entry in tomllib.loads(text).items()
        }
    return found


_HOME = "ml-100k"  # the data set whose preset holds where a paper names no other settings
PAPER_ROUNDS = 100
_OF_ROWS = {"method", "plugins", "options", "rounds"}  # what a row takes from a preset
PAPER_PROTOCOL = "paper"


class DataName(Frozen):
    """What a paper's data set is called in Solera; empty if there is none."""

    name: str = ""
    min_interactions: int | None = None


class Row(Frozen):
    """How a row is run. What is not given is as in the row `like`, or as in the `preset`."""

    like: str | None = None
    preset: str | None = None  # without the data set: paper:fedrap
    method: str | None = None
    baseline: str | None = None
    plugins: tuple[str, ...] = ()
    rounds: int | None = None
    options: dict[str, Any] = Field(default={})
    on: dict[str, dict[str, Any]] = Field(default={}, description="options on single data sets")
    noise: str | None = None
    dp: str | None = None


class PaperRows(Frozen):
    """The rows of a paper's tables."""

    key: str
    citation: str
    datasets: dict[str, DataName]
    runs: dict[str, Row]

    def preset(self, run: str, dataset: DataName, changes: dict[str, Any] | None = None) -> Preset:
        """The settings of a row on a data set, with some options changed; `noise` may be one of them."""
        settings = self._settings(run, dataset.name)
        options = settings.pop("options") | settings.pop("on", {}).get(dataset.name, {}) | (changes or {})
        noise = options.pop("noise", None)
        if noise is not None:
            settings["noise"] = f"laplace:{noise}" if noise else None
        named = {
            "name": f"paper:{slug(run)}@{self.key}/{dataset.name}",
            "dataset": dataset.name,
            "min_interactions": dataset.min_interactions,
            "protocol": PAPER_PROTOCOL,
            "source": f"{self.citation}, {run}",
            "options": options,
        }
        return Preset.model_validate(named | settings)

    def _settings(self, run: str, dataset: str) -> dict[str, Any]:
        """Settings with all that they take from another row or a preset; `on` is resolved last."""
        own = self.runs[run]
        base: dict[str, Any] = {"rounds": PAPER_ROUNDS, "options": {}}
        if own.like:
            base = self._settings(own.like, dataset)
        elif own.preset:
            stored = presets().get(f"{own.preset}/{dataset}") or presets()[f"{own.preset}/{_HOME}"]
            base |= {
                key: value for key, value in stored.model_dump(exclude_none=True).items() if key in _OF_ROWS
            }
        options = base["options"] | base.get("on", {}).get(dataset, {}) | own.options
        given = own.model_dump(exclude={"like", "preset", "options", "on"}, exclude_defaults=True)
        return base | given | {"options": options, "on": own.on}


@cache
def paper_rows() -> dict[str, PaperRows]:
    """The rows of all papers, by the paper's key."""
    text = files("solera.runs").joinpath("paper_rows.toml").read_text(encoding="utf-8")
    return {key: PaperRows(key=key, **entry) for key, entry in tomllib.loads(text).items()}


def row_preset(name: str) -> Preset | None:
    """The preset of a row; None if there is none."""
    return next((preset for preset in _row_presets() if preset.name == name), None)


def row_presets() -> list[str]:
    """Names of the presets of all rows."""
    return [preset.name for preset in _row_presets()]


def _row_presets() -> Iterator[Preset]:
    for paper in paper_rows().values():
        for run in paper.runs:
            for dataset in paper.datasets.values():
                yield paper.preset(run, dataset)


def slug(label: str) -> str:
    """The name of a row as a part of a preset's name."""
    return re.sub(r"[^a-z0-9.+=]+", "-", label.lower().replace("w/", "with")).strip("-")


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
        return Preset.model_validate({"name": name, **entry})
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


def is_baseline(name: str | None = None, preset: str | None = None) -> bool:
    """Whether a name, or a preset, is of a centralized baseline."""
    return _find(preset).baseline is not None if preset else name in BASELINES


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
    example = {"method": "fedmf", "baseline": "ease"}[kind]
    if chosen is None:
        if name is None or dataset is None:
            raise ConfigError(
                f"the {kind if name is None else 'data set'} is missing",
                f"for example: solera train {example} --data ml-100k; or give a --preset",
            )
        return {kind: name, "dataset": dataset, "plugins": plugins}
    if getattr(chosen, kind) is None:
        other = "baseline" if kind == "method" else "method"
        raise ConfigError(
            f"preset {chosen.name!r} is for a {other}, not for a {kind}",
            f"give a preset of a {kind}: solera methods --presets",
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
