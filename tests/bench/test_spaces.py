"""Search spaces: everything has one, of options that exist, and the papers' settings lie in it."""

from __future__ import annotations

import pytest

from solera.baselines import BASELINES, configure
from solera.bench.spaces import Range, space_of, spaces
from solera.methods import METHODS, ONE_ROUND, find
from solera.runs.presets import presets


@pytest.mark.parametrize("name", [*METHODS, *ONE_ROUND, *BASELINES])
def test_everything_in_the_catalogue_has_a_space(name):
    assert space_of(name) or name in ("popularity", "counter")


@pytest.mark.parametrize(
    "preset", [each for each in presets().values() if each.protocol == "paper"], ids=lambda each: each.name
)
def test_spaces_contain_the_papers_settings(preset):
    space = spaces().get(preset.full_method, {})
    for option, value in preset.options.items():
        where = space.get(option)
        if where is None:
            continue
        start = float(value.split("*")[0]) if isinstance(value, str) and "*" in value else value
        if where.choices is not None:
            assert start in where.choices, option
        else:
            assert where.low <= start <= where.high, option


@pytest.mark.parametrize("name", spaces())
def test_every_space_is_of_options_that_exist(name):
    """Both ends of every range are taken, and every choice."""
    first, *plugins = name.split("+")
    for option, where in spaces()[name].items():
        for value in where.choices or (where.low, where.high):
            if name in BASELINES:
                configure(name, {option: value})
            else:
                find(first, {option: value}, plugins)


@pytest.mark.parametrize(
    ("where", "inner", "outer"),
    [
        ({"low": 1.0, "high": 1e4, "log": True}, [2.6, 100, 3900], [0.5, 2.4, 4100, 2e4]),
        ({"low": 0.0, "high": 10.0}, [1.1, 5, 8.9], [-1, 0.0, 0.9, 9.1]),
        ({"choices": [1, 2]}, [1, 2, 3], []),
    ],
)
def test_near_an_end_of_a_range(where, inner, outer):
    """A tenth of four powers of ten is a factor of 10^0.4 = 2.51."""
    assert not any(Range.model_validate(where).near_end(value) for value in inner)
    assert all(Range.model_validate(where).near_end(value) for value in outer)
