"""Search spaces: those of `search_spaces.toml`, and the axes of a sweep as the command line writes them.

    learning_rate=0.01,0.05,0.1     these values
    learning_rate=1e-4..1           a range; by factors where it spans more than a factor of ten
    dropout=0.1..0.5:log            by factors all the same; `:linear` for the opposite
    adapter=[16,8],[32,16]          values that are lists

An axis is one of a method's options; `rounds`; `noise`, the scale of --noise laplace, 0 for none; or a part
of --dp, as in `dp.noise` or `dp.epsilon`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from itertools import product
from math import log
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from solera.baselines import BASELINES
from solera.core.errors import ConfigError, closest
from solera.dp.settings import DP, PaperLaplace
from solera.methods import find
from solera.runs.settings import RunConfig

EXAMPLE = "write -s learning_rate=0.01,0.1 or -s learning_rate=1e-4..1"
_RANGE = re.compile(r"(?P<low>[^.]\S*?)\.\.(?P<high>[^:]+?)(:(?P<scale>log|linear))?")
_DECADE = 10


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

    @property
    def values(self) -> list[Any]:
        """Its choices, or both ends."""
        if self.choices is not None:
            return self.choices
        assert self.low is not None and self.high is not None
        return [int(end) if self.whole else end for end in (self.low, self.high)]

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
    text = files("solera.study").joinpath("search_spaces.toml").read_text(encoding="utf-8")
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
            f"no search space for {name!r}",
            f"{closest(name, list(known))}; study/search_spaces.toml lists them",
        )
    return known[name]


def as_json(space: Space) -> dict[str, Any]:
    """A space as a study has it."""
    return {option: where.model_dump(mode="json", exclude_defaults=True) for option, where in space.items()}


def from_json(space: Mapping[str, Any]) -> Space:
    """The space of a study."""
    return {option: Range.model_validate(where) for option, where in space.items()}


def is_grid(space: Space) -> bool:
    """Whether the space is finite, so that a grid covers it."""
    return all(where.choices is not None for where in space.values())


def grid(space: Space) -> Iterator[dict[str, Any]]:
    """Every combination; the last axis moves fastest."""
    for values in product(*(where.choices or () for where in space.values())):
        yield dict(zip(space, values, strict=True))


def read_space(axes: Mapping[str, str], config: RunConfig) -> Space:
    """The space of all axes; what the run would not take is an error before anything is loaded."""
    fields = type(config.built.config).model_fields
    space: Space = {}
    for name, text in axes.items():
        whole = name == "rounds" or (name in fields and fields[name].annotation is int)
        space[name] = _axis(name, text, whole)
        for value in space[name].values:
            applied(config, {name: value}).resolved()
    return space


def _axis(name: str, text: str, whole: bool) -> Range:
    match = _RANGE.fullmatch(text.strip())
    if match is None:
        values = [_value(each) for each in re.findall(r"\[[^\]]*\]|[^,]+", text) if each.strip()]
        if not values or len({repr(value) for value in values}) < len(values):
            raise ConfigError(f"{name}={text}: the list of values is empty or repeats a value", EXAMPLE)
        return Range(choices=values)
    low, high = (_value(match[key]) for key in ("low", "high"))
    if isinstance(low, str) or isinstance(high, str) or low >= high:
        raise ConfigError(f"{name}={text} is not a range", EXAMPLE)
    log = match["scale"] == "log" or (match["scale"] is None and low > 0 and high > _DECADE * low)
    if log and low <= 0:
        raise ConfigError(f"{name}={text}: a logarithmic range must start above 0", EXAMPLE)
    return Range(low=low, high=high, log=log, whole=whole)


def _value(text: str) -> int | float | str:
    text = text.strip()
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text.strip("[]")


def applied(config: RunConfig, values: Mapping[str, Any]) -> RunConfig:
    """Config of a run with the given values on some axes."""
    options, changed, dp = dict(config.options), dict[str, Any](), dict[str, Any]()
    for name, value in values.items():
        if name == "rounds":
            changed["rounds"] = value
        elif name == "noise":
            changed["noise"] = PaperLaplace(scale=float(value)) if value else None
        elif name.startswith("dp."):
            dp[name.removeprefix("dp.")] = value
        else:
            options[name] = value
    if dp:
        changed["dp"] = _private(config.dp, dp)
    try:
        return RunConfig.model_validate(config.model_dump() | {"options": options} | changed)
    except ValidationError as error:
        wrong = error.errors()[0]
        raise ConfigError(f"{'.'.join(map(str, wrong['loc']))}: {wrong['msg']}", EXAMPLE) from None


def _private(given: DP | None, values: Mapping[str, Any]) -> DP:
    """Of ε and noise the one that is swept holds."""
    base = given.model_dump(exclude_none=True) if given else {}
    for one, other in (("epsilon", "noise"), ("noise", "epsilon")):
        if one in values and other not in values:
            base.pop(other, None)
    return DP.parse(",".join(f"{name}={value}" for name, value in (base | dict(values)).items()))
