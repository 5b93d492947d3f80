"""The search spaces of `spaces.toml`."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from math import log
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from solera.baselines import BASELINES
from solera.core.errors import ConfigError, closest
from solera.methods import find


class Range(BaseModel):
    """Search range of one option: from low to high, or a list of choices."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    low: float | None = None
    high: float | None = None
    log: bool = False
    whole: bool = False
    choices: Annotated[list[Any], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.choices is None) == (self.low is None or self.high is None):
            raise ValueError("give either low and high, or choices")
        return self

    def near_end(self, value: object) -> bool:
        """Whether a value lies in the first or last tenth of the range, or outside. Choices have no end."""
        if self.low is None or self.high is None or not isinstance(value, int | float):
            return False
        low, high, place = (log(each) if self.log else each for each in (self.low, self.high, value))
        return not low + (high - low) / 10 <= place <= high - (high - low) / 10


Space = dict[str, Range]


@cache
def spaces() -> dict[str, Space]:
    """All spaces, by the name of method (plug-ins included, as in fedmf+plgc) or baseline."""
    text = files("solera.bench").joinpath("spaces.toml").read_text(encoding="utf-8")
    found: dict[str, Space] = {}
    for name, table in tomllib.loads(text).items():
        base = found[table.pop("like")] if "like" in table else {}
        has = _options(name) if base else set()
        found[name] = {option: where for option, where in base.items() if option in has}
        found[name] |= {option: Range.model_validate(where) for option, where in table.items()}
    return found


def _options(name: str) -> set[str]:
    if name in BASELINES:
        return set(BASELINES[name].config.model_fields)
    method, *plugins = name.split("+")
    return set(type(find(method, {}, plugins).config).model_fields)


def space_of(name: str) -> Space:
    """The space of that method or baseline."""
    known = spaces()
    if name not in known:
        raise ConfigError(
            f"no search space for {name!r}", f"{closest(name, list(known))}; bench/spaces.toml lists them"
        )
    return known[name]


def as_json(space: Space) -> dict[str, Any]:
    """A space as a study has it."""
    return {option: where.model_dump(mode="json", exclude_defaults=True) for option, where in space.items()}
