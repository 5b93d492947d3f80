"""Axes of a sweep, parsed from the command line.

    learning_rate=0.01,0.05,0.1     these values
    learning_rate=1e-4..1           a range; by factors where it spans more than a factor of ten
    dropout=0.1..0.5:log            by factors all the same; `:linear` for the opposite
    adapter=[16,8],[32,16]          values that are lists

Beside a method's options: `rounds`; `noise`, the scale of --noise laplace, 0 for none; and the parts of
--dp, as in `dp.noise` or `dp.epsilon`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from pydantic import ValidationError

from solera.bench.spaces import Range, Space
from solera.core.errors import ConfigError
from solera.dp.settings import DP, PaperLaplace
from solera.methods import find
from solera.runs import RunConfig

EXAMPLE = "write -s learning_rate=0.01,0.1 or -s learning_rate=1e-4..1"
_RANGE = re.compile(r"(?P<low>[^.]\S*?)\.\.(?P<high>[^:]+?)(:(?P<scale>log|linear))?")
_DECADE = 10


def read_space(axes: Mapping[str, str], config: RunConfig) -> Space:
    """The space of all axes; what the run would not take is an error before anything is loaded."""
    fields = type(find(config.method, config.options, config.plugins).config).model_fields
    space: Space = {}
    for name, text in axes.items():
        whole = name == "rounds" or (name in fields and fields[name].annotation is int)
        space[name] = _axis(name, text, whole)
        where = space[name]
        for value in where.choices or (_end(where, where.low), _end(where, where.high)):
            applied(config, {name: value}).resolved()
    return space


def _end(where: Range, bound: float | None) -> float | int:
    assert bound is not None
    return int(bound) if where.whole else bound


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


def is_grid(space: Space) -> bool:
    """Whether the space is finite, so that a grid covers it."""
    return all(where.choices is not None for where in space.values())


def grid(space: Space) -> Iterator[dict[str, Any]]:
    """Every combination; the last axis moves fastest."""
    for values in product(*(where.choices or () for where in space.values())):
        yield dict(zip(space, values, strict=True))


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
