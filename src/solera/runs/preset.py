"""A preset: named settings of a run, with their source and the reported metrics."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from pydantic import BaseModel, ConfigDict

from solera.baselines import configure
from solera.dp.laplace import PaperLaplace
from solera.dp.settings import DP
from solera.runs.config import BaselineConfig, RunConfig


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
    dp: str | None = None  # dp and wire: as on the command line
    wire: str | None = None
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

    def config(self, *, protocol: str | None = None, seed: int = 0) -> RunConfig | BaselineConfig:
        """The settings of the preset's run, under its own protocol or another."""
        where = {
            "dataset": self.dataset,
            "protocol": protocol or self.protocol,
            "seed": seed,
            "columns": self.columns,
            "min_interactions": self.min_interactions,
        }
        if self.baseline:
            options = configure(self.baseline, self.options).model_dump(mode="json")
            return BaselineConfig.model_validate({"baseline": self.baseline, "options": options, **where})
        return RunConfig.model_validate(
            {
                "method": self.method,
                "plugins": self.plugins,
                "options": self.options,
                "rounds": self.rounds,
                "patience": self.patience,
                "evaluate_every": self.evaluate_every,
                "evaluate_users": self.evaluate_users,
                "dp": DP.parse(self.dp) if self.dp else None,
                "wire": PaperLaplace.parse(self.wire) if self.wire else None,
                **where,
            }
        ).resolved()


@cache
def presets() -> dict[str, Preset]:
    """All presets in the files of this package, by name."""
    found: dict[str, Preset] = {}
    for file in ("presets.toml", "tuned.toml", "chosen.toml", "transformers.toml"):
        text = files("solera.runs").joinpath(file).read_text(encoding="utf-8")
        found |= {name: Preset(name=name, **entry) for name, entry in tomllib.loads(text).items()}
    return found
