"""A fleet of nodes for load tests."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest

from commands import solera
from solera.core.errors import ConfigError
from solera.deploy.operate.fleet import FleetSettings, behaviours_of
from solera.deploy.operate.fleet_nodes import _lie, edge_of
from solera.deploy.operate.server_load import _program


def test_who_misbehaves():
    settings = FleetSettings(nodes=200, shares={"silent": 0.05, "lying": 0.1}, seed=3)
    found = behaviours_of(settings)
    assert Counter(found) == {"": 170, "silent": 10, "lying": 20}
    assert behaviours_of(settings) == found
    assert behaviours_of(settings.model_copy(update={"seed": 4})) != found


@pytest.mark.parametrize("shares", [{"rude": 0.1}, {"slow": 0.6, "old": 0.5}, {"slow": -0.1}])
def test_shares_that_are_none(shares):
    with pytest.raises(ConfigError, match="are not shares of"):
        behaviours_of(FleetSettings(nodes=10, shares=shares))


def test_a_lie_is_not_what_was_sent():
    assert _lie(np.zeros(3, "<f4")).tolist() == [np.float32(1e30)] * 3
    assert _lie(np.array([4, 4], "u1")).tolist() == [4, 5]


def test_programs_of_a_server():
    assert _program(["python", "-m", "solera.deploy.edge.guard", "--host"]) == "SuperLink"
    assert _program(["python", "/bin/flwr-serverapp", "--token-file", "x"]) == "server's app"


def test_every_edge_has_its_part_of_the_nodes():
    assert Counter(edge_of(number, 1000, 10) for number in range(1000)) == dict.fromkeys(range(10), 100)
    assert sorted(Counter(edge_of(number, 7, 3) for number in range(7)).values()) == [2, 2, 3]


@pytest.mark.slow
@pytest.mark.parametrize("masked", [False, True])
def test_a_fleet_behind_edges_that_misbehaves(masked):
    """Nodes that are silent, old or lie are left out alone; under masks, whom a lie spoils is not known."""
    shares = ("silent", "old") if masked else ("silent", "old", "lying")
    given = [word for name in shares for word in ("--share", f"{name}=0.09")]
    more = ["--masked"] if masked else []
    done = solera(
        *("fleet", "--nodes", 12, "--edges", 3, "--rounds", 2, *more, *given, "--json"), timeout=500
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [each["round"] for each in found["rounds"]] == [1, 2]
    assert all(found["done"][name] >= 1 for name in shares)
    for each in found["rounds"]:
        assert {stage["messages"] for stage in each["stages"].values()} == {6}


@pytest.mark.slow
@pytest.mark.parametrize("masked", [False, True])
def test_a_fleet_that_misbehaves_in_every_way(masked):
    """Every sort is met, each is refused for its own reason, and all rounds count."""
    shares = ("slow", "silent", "returning", "old", "lying")
    given = [word for name in shares for word in ("--share", f"{name}=0.05")]
    more = ["--masked"] if masked else []
    done = solera(
        *("fleet", "--nodes", 20, "--rounds", 2, "--slow", 1, "--away", 2, *more, *given, "--json"),
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [each["round"] for each in found["rounds"]] == [1, 2]
    assert all(found["done"][name] >= 1 for name in shares)
    rejected = found["rounds"][0]["rejected"]
    assert rejected["protocol"] == 1
    assert min(each["nodes"] for each in found["rounds"]) >= 14
