"""Named settings: what it takes to run a published row again."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from pydantic import BaseModel, ConfigDict

from solera.core.errors import ConfigError, closest
from solera.runs.config import RunConfig


class Preset(BaseModel):
    """A run's settings, where they come from, and what was reported for them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    method: str
    dataset: str
    protocol: str
    rounds: int
    source: str
    plugins: tuple[str, ...] = ()
    options: dict[str, Any] = {}
    published: dict[str, float] = {}

    @property
    def full_method(self) -> str:
        """The method's name with its plug-ins."""
        return "+".join([self.method, *self.plugins])

    def config(self, *, protocol: str | None = None, seed: int = 0) -> RunConfig:
        """The run it stands for, under its own protocol or another."""
        return RunConfig(
            method=self.method,
            dataset=self.dataset,
            plugins=self.plugins,
            options=self.options,
            protocol=protocol or self.protocol,
            rounds=self.rounds,
            seed=seed,
        ).resolved()


@cache
def presets() -> dict[str, Preset]:
    """All presets by name."""
    text = files("solera.runs").joinpath("presets.toml").read_text(encoding="utf-8")
    return {name: Preset(name=name, **entry) for name, entry in tomllib.loads(text).items()}


def preset(name: str) -> Preset:
    """The preset of that name."""
    known = presets()
    if name not in known:
        raise ConfigError(
            f"unknown preset {name!r}", f"{closest(name, list(known))}; solera presets lists them"
        )
    return known[name]
