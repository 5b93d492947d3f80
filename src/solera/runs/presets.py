"""Presets: named settings that reproduce published rows, and the best settings from equal tuning."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from solera.baselines import configure
from solera.core.errors import ConfigError, closest
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
                "dp": DP.parse(self.dp) if self.dp else None,
                "wire": PaperLaplace.parse(self.wire) if self.wire else None,
                "columns": self.columns,
                "min_interactions": self.min_interactions,
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
    """The preset with this name, or the preset in a .toml file."""
    if name.endswith(".toml"):
        return _in_file(Path(name))
    known = presets()
    if name not in known:
        raise ConfigError(
            f"unknown preset {name!r}", f"{closest(name, list(known))}; solera presets lists them"
        )
    return known[name]


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
