"""Every plug-in on every kind of backbone."""

from __future__ import annotations

from itertools import combinations
from typing import Any, ClassVar

import pytest

from solera.core.errors import ConfigError
from solera.methods import METHODS, PLUGINS, UNDER, build
from solera.methods.robust import DEFENCES
from solera.testing import MethodConformance

# Backbones of every kind: scorers with and without a gradient of their own, shared and personal leaves, users
# known by their history, kept and additive views, both optimisers, one and two stages, plain and tailored
# aggregation.
BACKBONES: dict[str, dict[str, Any]] = {
    "fedem-sr": {},
    "fedhist": {"clients_per_round": 1.0},
    "fedmf": {},
    "fedncf": {"hidden": (8, 4)},
    "fedrap": {"item_learning_rate": "5*0.9^round", "independence": 0.01},
    "pfedclr": {"clients_per_round": 1.0},
    "pfedrec": {"item_rate": 1.0},
}
OPTIONS: dict[str, dict[str, Any]] = {
    "elastic-merge": {"adapter": (4,), "adapter_learning_rate": 0.05},
    "plgc": {"redundancy": 0.5},
    "static-merge": {"merge_weight": 0.7, "aggregate_from": 2},
}
# What these change lies outside the clients' training, so fewer backbones and pairs show all there is to see.
SERVER_SIDE = ("row-mean", "server-optimizer", "popular-negatives")
CLIENT_SIDE = tuple(plugin for plugin in PLUGINS if plugin not in (*SERVER_SIDE, "robust"))


def legal(name: str, plugins: tuple[str, ...]) -> bool:
    try:
        build(name, {}, plugins)
    except ConfigError:
        return False
    return True


COMBINATIONS = [
    (name, plugins)
    for count in (1, 2)
    for plugins in combinations(CLIENT_SIDE, count)
    for name in (BACKBONES if count == 1 else ["fedmf", "fedrap"])
    if legal(name, plugins)
]
COMBINATIONS += [(name, (plugin,)) for plugin in SERVER_SIDE for name in ("fedmf", "fedrap", "pfedrec")]
COMBINATIONS += [("fedhist", (plugin,)) for plugin in SERVER_SIDE[1:]]
COMBINATIONS += [("fedmf", SERVER_SIDE), ("fedmf", ("plgc", *SERVER_SIDE))]
COMBINATIONS += [("fedmf", ("robust",)), ("pfedrec", ("robust",)), ("fedmf", ("plgc", "robust"))]
# All other methods that take a plug-in.
OTHERS = [
    (name, (plugin,))
    for name in METHODS
    for plugin in PLUGINS
    if (name, (plugin,)) not in COMBINATIONS and legal(name, (plugin,))
]


def everyday(name: str, plugins: tuple[str, ...]) -> bool:
    """Every plug-in by itself, and those that have most to do with each other.

    The rest is run by `pytest -m slow tests/engine/test_plugged_methods.py`.
    """
    if (name, plugins) in OTHERS:
        return False
    if len(plugins) == 1:
        return name == "fedmf" or (name, *plugins) in (("fedncf", "plgc"), ("fedhist", "popular-negatives"))
    return plugins == ("low-rank", "plgc") or not set(plugins) <= set(CLIENT_SIDE)


for name, plugins in (*COMBINATIONS, *OTHERS):
    family = BACKBONES.get(name.split("-")[0], {"item_rate": 1.0} if name == "gpfedrec" else {})
    options = {key: value for key, value in family.items() if key in METHODS[name].config.model_fields}
    options |= {k: v for plugin in plugins for k, v in OPTIONS.get(plugin, {}).items()}
    if (name, "plgc") in UNDER and "plgc" in plugins:
        options["item_learning_rate"] = "5*0.9^round"  # the default runs away on the toy data
    title = "Test_" + "_with_".join([name, *plugins]).replace("-", "_")
    marks = [] if everyday(name, plugins) else [pytest.mark.slow]
    members: dict[str, Any] = {"name": name, "plugins": plugins, "options": options, "pytestmark": marks}
    globals()[title] = type(title, (MethodConformance,), members)


class Test_fedmf_with_elastic_merge_as_in_the_code(MethodConformance):  # noqa: N801 - like those above
    name = "fedmf"
    plugins = ("elastic-merge",)
    options: ClassVar = {**OPTIONS["elastic-merge"], "form": "code", "batch_size": 12}


@pytest.mark.slow
class Test_fedncf_with_elastic_merge_as_in_the_code(MethodConformance):  # noqa: N801 - like those above
    name = "fedncf"
    plugins = ("elastic-merge",)
    options: ClassVar = {
        **OPTIONS["elastic-merge"],
        "form": "code",
        "merge_server": "code",
        "hidden": (8, 4),
        "perceptron": "personal",
        "perceptron_reg": 0.1,
    }


class Test_fedncf_with_momentum_on_the_server(MethodConformance):  # noqa: N801 - like those above
    """Leaves that are not per item. Adam would divide by next to nothing here, and show the rounding."""

    name = "fedncf"
    plugins = SERVER_SIDE
    options: ClassVar = {**OPTIONS.get("server-optimizer", {}), "server_optimizer": "momentum"}


for defence in DEFENCES:
    weighted = defence == "weight-bound"
    members = {
        "name": "fedrecon" if weighted else "fedncf",
        "plugins": ("robust",) if weighted else ("row-mean", "robust"),
        "options": {"robust": defence} | ({} if weighted else {"hidden": (8, 4)}),
    }
    marks = [] if defence in ("norm-bound", "krum", "grouped") else [pytest.mark.slow]  # one of each kind
    members["pytestmark"] = marks
    title = f"Test_{defence.replace('-', '_')}"
    globals()[title] = type(title, (MethodConformance,), members)


class Test_fedmf_with_all_of_the_server(MethodConformance):  # noqa: N801 - like those above
    name = "fedmf"
    plugins = ("row-mean", "server-optimizer", "robust", "popular-negatives")
    options: ClassVar = {"server_optimizer": "momentum", "over": "all", "trim": 0.1}


def test_every_plugin_fits_most_backbones() -> None:
    """Otherwise the above would hold of plug-ins that fit nothing."""
    fitting = {plugin: [n for n, given in COMBINATIONS if given == (plugin,)] for plugin in PLUGINS}
    served = ["fedmf", "fedrap", "pfedrec"]
    assert [fitting[plugin] for plugin in SERVER_SIDE] == [served, *[[*served, "fedhist"]] * 2]
    assert fitting["elastic-merge"] == list(BACKBONES)
    assert fitting["plgc"] == [name for name in BACKBONES if name != "fedhist"]
    fine_tuned = ["fedem-sr", "fedhist", "fedmf", "fedncf", "fedrap"]
    assert fitting["dual-personalization"] == fitting["low-rank"] == fine_tuned
    assert fitting["additive"] == [name for name in BACKBONES if name not in ("fedrap", "pfedclr")]


@pytest.mark.parametrize("name", METHODS)
def test_what_does_not_fit_says_why(name: str) -> None:
    for count in (1, 2):
        for plugins in combinations(PLUGINS, count):
            try:
                build(name, {}, plugins)
            except ConfigError as error:
                assert "cannot be used with" in str(error) or "is inconsistent" in str(error)


@pytest.mark.parametrize(
    ("name", "plugins", "why"),
    [
        ("fedrap", ("additive",), "already have a personal table"),
        ("fedhist", ("plgc",), "starts at zero"),
        ("local", ("elastic-merge",), "no shared item table"),
        ("fedmf", ("elastic-merge", "plgc"), "already have a table of their own"),
        ("pfedrec", ("dual-personalization",), "already keep their fine-tuned table"),
        ("pfedclr", ("low-rank",), "already keep their fine-tuned table"),
        ("fedmf", ("dual-personalization", "low-rank"), "already keep their fine-tuned table"),
        ("fedmf", ("elastic-merge", "row-mean"), "send whole tables"),
    ],
)
def test_impossible_combinations(name: str, plugins: tuple[str, ...], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        build(name, {}, plugins)


def test_unknown_plugin() -> None:
    with pytest.raises(ConfigError, match=r"unknown plug-in 'elastic-merg'.*elastic-merge"):
        build("fedmf", {}, ("elastic-merg",))


def test_order_and_repetition_do_not_matter() -> None:
    one = build("fedmf", {}, ("plgc", "low-rank"))
    two = build("fedmf", {}, ("low-rank", "plgc", "plgc"))
    assert one.name == two.name == "fedmf+low-rank+plgc"
    assert (one.view, one.update) == (two.view, two.update)


def test_options_of_the_plugin_are_options_of_the_method() -> None:
    view: Any = build("fedmf", {"adapter": (4,)}, ("elastic-merge",)).view
    assert view.adapter == (4,)
    with pytest.raises(ConfigError, match="has no option 'adapter'"):
        build("fedmf", {"adapter": (4,)})
    with pytest.raises(ConfigError, match="rank"):
        build("fedmf", {"rank": 0}, ("low-rank",))
