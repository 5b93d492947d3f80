"""Search spaces: everything has one, of options that exist, and the papers' settings lie in it."""

from __future__ import annotations

import pytest

from solera.baselines import BASELINES, configure
from solera.bench.spaces import space_of, spaces
from solera.methods import METHODS, ONE_ROUND, find
from solera.runs.presets import presets


@pytest.mark.parametrize("name", [*METHODS, *ONE_ROUND, *BASELINES])
def test_everything_in_the_catalogue_has_a_space(name):
    assert space_of(name) or name == "popularity"


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
