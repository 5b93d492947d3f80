"""Methods and baselines on one data set, each with its defaults or as a preset, as a matrix."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from solera.baselines import configure
from solera.bench.entries import Entry, Matrix
from solera.core.errors import ConfigError
from solera.methods import find
from solera.runs.presets import preset
from solera.runs.settings import BaselineConfig, RunConfig, usual_rounds


def compared(
    methods: Sequence[str], baselines: Sequence[str], folder: Path, *, rounds: int, **where: Any
) -> Matrix:
    """`where` is what all runs share: data set, protocol, seed, and how an own file is read."""
    entries = [_method(name, rounds, where) for name in methods]
    for name in baselines:
        options = configure(name).model_dump(mode="json")
        entries.append(Entry(name, BaselineConfig(baseline=name, options=options, **where)))
    labels = [entry.label for entry in entries]
    twice = [label for label in labels if labels.count(label) > 1]
    if twice:
        raise ConfigError(f"{twice[0]} is listed twice", "list it once")
    return Matrix(folder, tuple(entries))


def _method(name: str, rounds: int, where: dict[str, Any]) -> Entry:
    if ":" in name or name.endswith(".toml"):
        return _preset(name, where)
    method, *plugins = name.split("+")
    usual = usual_rounds(find(method, {}, plugins))
    config = RunConfig(method=method, plugins=tuple(plugins), rounds=min(rounds, usual), **where)
    return Entry(config.full_method, config.resolved())


def _preset(name: str, where: dict[str, Any]) -> Entry:
    """A preset keeps its rounds; it has to be of the same data set."""
    chosen = preset(name)
    if chosen.dataset != where["dataset"]:
        raise ConfigError(
            f"preset {name!r} is for {chosen.dataset}, not for {where['dataset']}",
            "choose a preset for the same data set",
        )
    config = chosen.config(protocol=where["protocol"], seed=where["seed"])
    return Entry(chosen.name, config, chosen.name)
