"""Search spaces: everything has one, of options that exist, with the papers' settings; axes as typed."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise
from typing import Any

import pytest

from solera.baselines import BASELINES, configure
from solera.core.errors import ConfigError
from solera.methods import METHODS, ONE_ROUND, find
from solera.runs import RunConfig
from solera.runs.presets import presets
from solera.study.search_space import Range, applied, grid, read_space, space_of, spaces
from solera.study.sweep import check_size


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


CONFIG = RunConfig(method="fedmf", dataset="ratings.csv", rounds=2)


@pytest.mark.parametrize(
    ("axis", "where"),
    [
        ("learning_rate=0.01,0.1", Range(choices=[0.01, 0.1])),
        ("learning_rate=0.1,0.1*0.9^round", Range(choices=[0.1, "0.1*0.9^round"])),
        ("learning_rate=1e-4..1", Range(low=1e-4, high=1, log=True)),
        ("learning_rate=0.1..1", Range(low=0.1, high=1)),
        ("learning_rate=0.1..1:log", Range(low=0.1, high=1, log=True)),
        ("reg=0..1", Range(low=0, high=1)),
        ("reg=1e-4..1:linear", Range(low=1e-4, high=1)),
        ("embedding_size=4..64", Range(low=4, high=64, log=True, whole=True)),
        ("rounds=2..9", Range(low=2, high=9, whole=True)),
        ("noise=0,0.5", Range(choices=[0, 0.5])),
    ],
)
def test_axes_as_they_are_written(axis, where):
    name, text = axis.split("=", 1)
    assert read_space({name: text}, CONFIG) == {name: where}


def test_an_axis_of_lists():
    config = RunConfig(method="fedem", dataset="x", rounds=2)
    assert read_space({"adapter": "[16,8],[4,2]"}, config) == {"adapter": Range(choices=["16,8", "4,2"])}


@pytest.mark.parametrize(
    ("axis", "message"),
    [
        ("leaning_rate=1,2", "no option 'leaning_rate'"),
        ("negatives=0,4", "negatives"),
        ("embedding_size=0..8", "embedding_size"),
        ("learning_rate=1..0.1", "is not a range"),
        ("learning_rate=a..b", "is not a range"),
        ("reg=0..1:log", "must start above 0"),
        ("reg=1,1", "repeats a value"),
        ("reg=", "list of values is empty"),
        ("dp.epsilon=1,2", "delta"),
    ],
)
def test_what_no_run_would_take_is_an_error_at_once(axis, message):
    name, text = axis.split("=", 1)
    with pytest.raises(ConfigError, match=message):
        read_space({name: text}, CONFIG)


def test_a_value_is_set_where_it_belongs():
    pytest.importorskip("dp_accounting")
    base = applied(CONFIG, {"dp.epsilon": 8, "dp.delta": 1e-5})
    assert (base.dp.epsilon, base.dp.noise) == (8, None)
    made = applied(base, {"dp.noise": 2.0, "reg": 0.1, "rounds": 7})
    assert (made.dp.epsilon, made.dp.noise, made.dp.delta) == (None, 2.0, 1e-5)
    assert (made.options, made.rounds) == ({"reg": 0.1}, 7)
    assert applied(CONFIG, {"noise": 0.5}).noise.scale == 0.5
    assert applied(CONFIG, {"noise": 0}).noise is None


def test_a_grid_is_every_combination_and_is_tried_in_full():
    space = {"a": Range(choices=[1, 2]), "b": Range(choices=["x", "y"])}
    found = [tuple(each.values()) for each in grid(space)]
    assert found == [(1, "x"), (1, "y"), (2, "x"), (2, "y")]
    assert check_size(space, None) == 4
    with pytest.raises(ConfigError, match="tried in full"):
        check_size(space, 3)
    assert check_size({"a": Range(low=0, high=1)}, 7) == 7
    with pytest.raises(ConfigError, match="nothing to sweep"):
        check_size({}, None)


def test_every_sweep_in_the_documents_is_taken(pytestconfig):
    text = (pytestconfig.rootpath / "docs" / "guides" / "studies.md").read_text("utf-8").replace("\\\n", "")
    commands = [shlex.split(line) for line in re.findall(r"^solera sweep .*$", text, re.MULTILINE)]
    assert len(commands) > 5
    for command in commands:
        given: dict[str, Any] = {"-s": {}, "-o": {}, "--plugin": []}
        for flag, value in pairwise(command):
            if flag == "--plugin":
                given[flag].append(value)
            elif flag in given:
                key, _, rest = value.partition("=")
                given[flag][key] = rest
        config = RunConfig(
            method=command[2],
            dataset="ml-100k",
            rounds=5,
            options=given["-o"],
            plugins=tuple(given["--plugin"]),
        )
        assert check_size(read_space(given["-s"], config), None) > 1
