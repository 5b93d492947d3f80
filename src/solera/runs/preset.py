"""A preset: named settings of a run, with their source and the reported metrics."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from pydantic import BaseModel, ConfigDict

from solera.baselines import configure
from solera.runs.settings import BaselineConfig, RunConfig


class Preset(BaseModel):
    """A run's settings, their source, and the reported metrics."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    method: str | None = None
    baseline: str | None = None  # a centralized baseline instead of a method
    dataset: str
    protocol: str
    rounds: int | None = None
    patience: int | None = None
    evaluate_every: int = 1
    evaluate_users: int | None = None
    dp: str | None = None  # dp and noise: as on the command line
    noise: str | None = None
    columns: dict[str, str] | None = None
    min_interactions: int | None = None
    source: str
    plugins: tuple[str, ...] = ()
    options: dict[str, Any] = {}
    published: dict[str, float] = {}

    @property
    def full_method(self) -> str:
        """The method's name with its plug-ins."""
        return "+".join([self.method or self.baseline or "", *self.plugins])

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of a run that the preset gives, but for names and options."""
        names = ("rounds", "patience", "evaluate_every", "evaluate_users", "dp", "noise")
        given = {name: getattr(self, name) for name in (*names, "protocol", "columns", "min_interactions")}
        return {name: value for name, value in given.items() if value is not None}

    def config(self, *, protocol: str | None = None, seed: int = 0) -> RunConfig | BaselineConfig:
        """The settings of the preset's run, under its own protocol or another."""
        where = {"dataset": self.dataset, "protocol": protocol or self.protocol, "seed": seed}
        if self.baseline:
            where |= {"columns": self.columns, "min_interactions": self.min_interactions}
            options = configure(self.baseline, self.options).model_dump(mode="json")
            return BaselineConfig.model_validate({"baseline": self.baseline, "options": options, **where})
        named = {"method": self.method, "plugins": self.plugins, "options": self.options}
        return RunConfig.model_validate(self.settings | named | where).resolved()


@cache
def presets() -> dict[str, Preset]:
    """All presets by name. Of two files with the same the later counts: equal tuning before other choices."""
    found: dict[str, Preset] = {}
    for file in ("presets.toml", "chosen.toml", "tuned.toml", "transformers.toml"):
        text = files("solera.runs").joinpath(file).read_text(encoding="utf-8")
        found |= {name: Preset(name=name, **entry) for name, entry in tomllib.loads(text).items()}
    return found
