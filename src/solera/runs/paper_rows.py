"""Presets of the rows of papers' tables, named as in paper:fedmf@pfedrec/ml-100k; see paper_rows.toml."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

from pydantic import Field

from solera.core.types import Frozen
from solera.runs.preset import Preset, presets

HOME = "ml-100k"  # the data set whose preset holds where a paper names no other settings
ROUNDS = 100
PROTOCOL = "paper"


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
        return Preset(
            name=f"paper:{slug(run)}@{self.key}/{dataset.name}",
            dataset=dataset.name,
            min_interactions=dataset.min_interactions,
            protocol=PROTOCOL,
            source=f"{self.citation}, {run}",
            options=options,
            **settings,
        )

    def _settings(self, run: str, dataset: str) -> dict[str, Any]:
        """Settings with all that they take from another row or a preset; `on` is resolved last."""
        own = self.runs[run]
        base: dict[str, Any] = {"rounds": ROUNDS, "options": {}}
        if own.like:
            base = self._settings(own.like, dataset)
        elif own.preset:
            stored = presets().get(f"{own.preset}/{dataset}") or presets()[f"{own.preset}/{HOME}"]
            base |= stored.model_dump(include={"method", "plugins", "options", "rounds"}, exclude_none=True)
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
