"""The demonstration: its figures, and that nothing of it is left behind."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import in_process
from closed_forms import closed_form
from commands import environment, wait_for
from solera.core.errors import ConfigError, DataError
from solera.data.datasets import load
from solera.data.ragged import Ragged
from solera.data.sampling import ClientData
from solera.device.device import Device
from solera.device.publish import catalogue_of, start
from solera.engine import OneRound
from solera.evaluate import Evaluator, split
from solera.federation.node.node import Node
from solera.federation.operate import demo
from solera.federation.operate.demo import Households, start_of
from solera.federation.operate.processes import Process
from solera.federation.server.coordinator import Coordinator
from solera.federation.server.folder import FederationFolder

COLUMNS = {"user": "who", "item": "what", "time": "when", "title": "called"}


@pytest.fixture(scope="module")
def seen(tmp_path_factory) -> Path:
    """A file of 12 users and 30 items."""
    draw = random.Random(0)
    lines = ["who,what,when,called"]
    for user in range(12):
        for item in draw.sample(range(30), 8 + user % 5):
            lines.append(f"u{user},i{item},{len(lines)},Film {item}")
    path = tmp_path_factory.mktemp("data") / "seen.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def data(seen):
    return load(str(seen), columns=COLUMNS)


def federate(folder: Path, bundle, devices: list[Device]) -> None:
    """All of a federation's exchanges, without a network."""
    prepared = FederationFolder.prepare(folder, bundle, {"rounds": 1, "min_nodes": 1}, resume=False)
    coordinator, nodes = Coordinator(prepared), dict(enumerate(devices))
    for kind, packets, take in (
        ("enrol", lambda: coordinator.invite(nodes), coordinator.enrol),
        ("train", lambda: coordinator.begin(0, nodes), coordinator.take),
    ):
        for node, packet in packets().items():
            take(node, Node(nodes[node], threads=1).answer(kind, packet))
    coordinator.close()
    for node, packet in coordinator.farewells(nodes).items():
        Node(nodes[node], threads=1).answer("finish", packet)


def test_figures_are_those_of_the_same_model_made_in_one_place(data, key, tmp_path):
    """EASE is exact: the sums of all devices give what all histories together give."""
    households = Households.choose(data, [tmp_path / "a", tmp_path / "b"], 6)
    bundle = start("fedease", catalogue_of(data), tmp_path / "x.bundle", key, precision="double")
    households.create(bundle)
    devices = [Device.open(folder) for folder in households.folders]
    assert devices[0].history("u0") == [f"i{n}" for n in _ids(data, households.knows().row(0))]
    federate(tmp_path / "server", bundle, devices)
    for device in devices:
        device.close()
    known = households.knows()
    alone = OneRound(
        closed_form("fedease"),
        ClientData(known, known.sorted_unique(), data.n_items),
        device=torch.device("cpu"),
        dtype=torch.float64,
    )
    alone.run_round(0)
    expected = Evaluator(split(data, "strict"), seed=0).test(alone.serve(known))
    found = households.evaluate()
    assert found.full_ranking.users.tolist() == list(range(12))
    assert found.full_ranking.places.tolist() == expected.full_ranking.places.tolist()
    assert found.full == expected.full


def _ids(data, items) -> list[str]:
    return [str(data.item_map.id(int(item)))[1:] for item in items]


def test_what_is_held_back_is_on_no_device(data, key, tmp_path):
    households = Households.choose(data, [tmp_path / "a", tmp_path / "b"], 3)
    households.create(start("fedmf", catalogue_of(data), tmp_path / "x.bundle", key))
    for folder, users in zip(households.folders, households.users, strict=True):
        device = Device.open(folder)
        for user in users.tolist():
            item = str(data.item_map.id(households.held_back(user)))
            mine = data.by_user.row(user)
            assert item == str(data.item_map.id(int(mine[-1])))
            assert device.history(households.name(user)) == [str(data.item_map.id(int(i))) for i in mine[:-1]]
        device.close()
    with pytest.raises(DataError, match="12 users with an item to hold back, not 2 × 7"):
        Households.choose(data, [tmp_path / "a", tmp_path / "b"], 7)


@pytest.mark.parametrize("method", ["fedease", "fedmf", "fedem", "pfedrec"])
def test_before_the_first_round_nothing_is_known(data, key, tmp_path, method):
    """The scores are those of the parameters everybody starts with, for methods of every kind."""
    households = Households.choose(data, [tmp_path / "a"], 4)
    bundle = start(method, catalogue_of(data), tmp_path / "x.bundle", key)
    households.create(bundle)
    first, again = (households.evaluate(start_of(bundle)) for _ in range(2))
    assert first.full_ranking.users.tolist() == [0, 1, 2, 3]
    assert first.full == again.full
    if method == "fedease":  # all items tie: everybody's is in the middle of the 30 less the known ones
        lengths = Ragged.take(households.knows(), np.arange(4)).lengths
        assert first.full_ranking.places.tolist() == [(30 - n + 1) / 2 for n in lengths.tolist()]


def test_a_folder_with_something_in_it_is_left_alone(data, tmp_path):
    (tmp_path / "mine").write_text("x")
    with pytest.raises(ConfigError, match="is not empty"):
        demo.run(data, method="fedmf", nodes=1, users=1, rounds=1, tell=print, on_round=print, keep=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def left(place: Path) -> list[str]:
    """Processes that were told of a folder."""
    command = ["ps", "-A", "-ww", "-o", "args="]  # however wide
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [line for line in listing.splitlines() if str(place) in line]


def arguments(seen: Path, *more: object) -> list[str]:
    columns = ",".join(f"{kind}={name}" for kind, name in COLUMNS.items())
    given = ("--data", seen, "--columns", columns, "--nodes", 2, "--users", 4, "--json", *more)
    return ["federation", "demo", *map(str, given)]


@pytest.mark.slow
def test_a_whole_federation_and_nothing_left(seen, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    command = [sys.executable, "-m", "solera", *arguments(seen, "--rounds", 2)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=240, env=environment(), check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [(each["round"], each["clients"], each["nodes"]) for each in found["rounds"]] == [
        (1, 8, 2),
        (2, 8, 2),
    ]
    assert found["before"].keys() == found["after"].keys() == {"hr@10", "ndcg@10"}
    assert 0 <= found["after"]["hr@10"] <= 1
    assert [each["rank"] for each in found["recommended"]] == list(range(1, 11))
    assert found["user"] == "u0"
    assert [each["round"] for each in found["sent"]] == [-1, 0, 1, -1]
    assert "change/items" in found["sent"][1]["tensors"]
    assert list(tmp_path.iterdir()) == []
    assert left(tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("words", ["each with a key of its own", "· the federation"])
def test_ctrl_c_takes_everything_down(seen, tmp_path, monkeypatch, words):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    command = [sys.executable, "-m", "solera", *arguments(seen)]
    process = Process(command, environment(), tmp_path.parent / f"{tmp_path.name}.log")
    try:
        wait_for(process, words)
        end = time.monotonic() + 180
        while not left(tmp_path) and time.monotonic() < end:
            time.sleep(0.1)
        assert left(tmp_path)
        os.kill(process.pid, signal.SIGINT)
        while process.is_running and time.monotonic() < end:
            time.sleep(0.1)
        assert process.said().splitlines()[-1] == "error: stopped"
        assert list(tmp_path.iterdir()) == []
        assert left(tmp_path) == []
    finally:
        process.stop()


def test_wrong_use_starts_nothing():
    done = in_process.solera("federation", "demo", "--method", "fedfm")
    assert done.returncode == 2
    assert "did you mean 'fedmf'" in done.stderr
