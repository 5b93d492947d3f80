"""Named settings: what it takes to run a published row again, and the best that equal tuning found."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from pydantic import BaseModel, ConfigDict

from solera.baselines import configure
from solera.core.errors import ConfigError, closest
from solera.runs.config import BaselineConfig, RunConfig


class Preset(BaseModel):
    """A run's settings, where they come from, and what was reported for them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    method: str | None = None
    baseline: str | None = None  # instead of a method, a centralized baseline
    dataset: str
    protocol: str
    rounds: int | None = None
    patience: int | None = None
    source: str
    plugins: tuple[str, ...] = ()
    options: dict[str, Any] = {}
    published: dict[str, float] = {}

    @property
    def full_method(self) -> str:
        """The method's name with its plug-ins."""
        return "+".join([self.method or self.baseline or "", *self.plugins])

    def config(self, *, protocol: str | None = None, seed: int = 0) -> RunConfig | BaselineConfig:
        """The run it stands for, under its own protocol or another."""
        protocol = protocol or self.protocol
        if self.baseline:
            options = configure(self.baseline, self.options).model_dump(mode="json")
            return BaselineConfig(
                baseline=self.baseline, dataset=self.dataset, options=options, protocol=protocol, seed=seed
            )
        return RunConfig.model_validate(
            {
                "method": self.method,
                "dataset": self.dataset,
                "plugins": self.plugins,
                "options": self.options,
                "protocol": protocol,
                "rounds": self.rounds,
                "patience": self.patience,
                "seed": seed,
            }
        ).resolved()


@cache
def presets() -> dict[str, Preset]:
    """All presets by name."""
    found: dict[str, Preset] = {}
    for file in ("presets.toml", "tuned.toml"):
        text = files("solera.runs").joinpath(file).read_text(encoding="utf-8")
        found |= {name: Preset(name=name, **entry) for name, entry in tomllib.loads(text).items()}
    return found


def preset(name: str) -> Preset:
    """The preset of that name."""
    known = presets()
    if name not in known:
        raise ConfigError(
            f"unknown preset {name!r}", f"{closest(name, list(known))}; solera presets lists them"
        )
    return known[name]
