"""Whatever a stranger sends: taken, or refused with a reason; no crash, no hang, no memory without bound.

pytest -m slow tests/fuzz tries a million messages of the protocol and a hundred thousand files of each kind:

    100,000   replies to the server, of rounds without masks, each taken or refused by it
    100,000   requests to a node, of rounds without masks, each answered or declined by it
    800,000   messages of masked rounds, in both directions: stages.py says how many of them are acted on
"""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

pytest.importorskip("alembic", reason="needs the extra server")

from exports import KINDS, TABLE
from mutations import bytes_of, fuzz, json_of
from packets import received

from solera.core.errors import SoleraError
from solera.data.datasets import load
from solera.data.interactions import Interactions
from solera.device.bundle import Bundle, Item
from solera.device.device import Device
from solera.device.importers import READERS
from solera.device.keys import make_keys
from solera.device.ledger import Ledger
from solera.device.policy import Policy
from solera.device.publish import start
from solera.federation.common.settings import Settings
from solera.federation.node.node import Node
from solera.federation.server.coordinator import Coordinator
from solera.federation.server.folder import FederationFolder
from solera.federation.server.masked_round import STAGES as MASKED
from solera.methods import find
from solera.runs import Run, RunConfig, train

ITEMS = 12
COUNTS = [400, pytest.param(100_000, marks=pytest.mark.slow)]
STAGES = [300, pytest.param(800_000, marks=pytest.mark.slow)]
_IMPORT_MEGABYTES = 300  # that importing may take, whatever the file is
_MESSAGE_MEGABYTES = 300  # that messages may add to what the imports take


# A process starts with the peak of its parent, and pytest's is large: a small one stands between.
_BETWEEN = """
import json, resource, subprocess, sys
done = subprocess.run(sys.argv[1:], capture_output=True)
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
print(json.dumps([done.returncode, done.stdout.decode(), done.stderr.decode(), peak]))
"""


class Measured(NamedTuple):
    """How a command ended, what it wrote, and its peak in megabytes."""

    code: int
    stdout: str
    stderr: str
    peak: float


def python(*arguments: object) -> Measured:
    """Run Python with these arguments."""
    command = [sys.executable, "-c", _BETWEEN, sys.executable, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return Measured(*json.loads(done.stdout))


@pytest.fixture(autouse=True)
def quiet():
    """A hundred thousand refusals are not for the log."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@pytest.fixture(scope="module")
def bundle(place) -> Bundle:
    make_keys(place / "publisher")
    items = [Item(str(item), f"Film {item}", 1990) for item in range(ITEMS)]
    return start("fedmf", items, place / "a.bundle", place / "publisher.key", options={"embedding_size": 3})


@pytest.fixture
def device(bundle, tmp_path):
    made = Device.create(tmp_path / "device", bundle)
    for user in ("a", "b"):
        made.add_all([(str(item), item) for item in range(4)], user, "test")
    Ledger(made.store).join_next()
    Policy(rounds_per_day=1_000_000).write(made.store)
    yield made
    made.close()


@pytest.mark.parametrize("count", COUNTS)
def test_replies_to_the_server(bundle, device, tmp_path, count):
    """None of them takes the server down, and the round can still be closed."""
    folder = FederationFolder.create(tmp_path / "server", bundle, Settings(min_nodes=1))
    coordinator, node = Coordinator(folder), Node(device, threads=1)
    invitation = coordinator.invite({1})[1]
    enrolment = node.answer("enrol", invitation)
    coordinator.enrol(1, enrolment)
    good = node.answer("train", coordinator.begin(0, {1})[1])
    now = coordinator.round
    assert now is not None

    def attempt(draw: random.Random) -> None:
        if draw.random() < 0.2:
            Coordinator.enrol(coordinator, 2, received(draw, enrolment))
            return
        now.answered.clear()
        coordinator.take(1, received(draw, good))

    taken, refused = fuzz(count, attempt)
    assert taken and refused > count / 3
    assert coordinator.close() is not None
    assert all(np.isfinite(values).all() for values in coordinator.state.shared.values())


@pytest.mark.parametrize("count", COUNTS)
def test_messages_to_a_device(bundle, device, tmp_path, count):
    """A node answers or declines; it never sends what its method does not declare."""
    folder = FederationFolder.create(tmp_path / "server", bundle, Settings(min_nodes=1))
    coordinator, node = Coordinator(folder), Node(device, threads=1)
    invitation = coordinator.invite({1})[1]
    coordinator.enrol(1, node.answer("enrol", invitation))
    order = coordinator.begin(0, {1})[1]
    wanted = node.answer("train", order).arrays.keys()
    device.store.connection.execute("PRAGMA synchronous = OFF")  # a hundred thousand commits

    def attempt(draw: random.Random) -> None:
        kind = draw.choice(("train", "train", "finish", "enrol"))
        good = invitation if kind == "enrol" else order
        answer = node.answer(kind, received(draw, good))
        assert answer.arrays.keys() in (set(), wanted)
        if "declined" in answer.fields:
            raise SoleraError("declined")

    taken, refused = fuzz(count, attempt)
    assert taken and refused > count / 4
    assert device.status()["database"] == "ok"
    assert device.history("a") == ["0", "1", "2", "3"]


@pytest.mark.parametrize("count", STAGES)
def test_messages_of_masked_rounds(tmp_path, monkeypatch, count):
    """In a process of their own: it imports everything, torch as well, and then grows by what they take."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    done = python(Path(__file__).with_name("stages.py"), tmp_path, count)
    assert done.code == 0, done.stderr
    report = json.loads(done.stdout)
    print(done.stdout)
    assert sum(report["messages"].values()) >= count
    kinds = {f"{who} {kind}" for who in ("node", "server", "read request", "read reply") for kind in MASKED}
    assert report["found"].keys() == {*kinds, "read request enrol", "read reply enrol", "round"}
    for kind, (taken, refused) in report["found"].items():
        assert taken + refused > 0, kind
        assert count < 100_000 or (taken and refused), kind
    assert report["megabytes"]["peak"] - report["megabytes"]["imported"] < _MESSAGE_MEGABYTES


@pytest.mark.parametrize("count", COUNTS)
def test_bundles(bundle, place, count):
    good, path = bundle.path.read_bytes(), place / "odd.bundle"

    def attempt(draw: random.Random) -> None:
        path.write_bytes(bytes_of(draw, good))
        Bundle.open(path, bundle.key).catalogue()

    _, refused = fuzz(count, attempt)
    assert refused > count * 0.9


@pytest.fixture(scope="module")
def finished(place) -> tuple[Path, Interactions]:
    draw = np.random.default_rng(1)
    users, items = np.repeat(np.arange(8), 6), np.concatenate([draw.permutation(ITEMS)[:6] for _ in range(8)])
    data = Interactions.from_columns(
        "small", [f"u{u}" for u in users], [str(i) for i in items], np.arange(48)
    )
    options = find("fedmf", {"embedding_size": 3}).config.model_dump(mode="json")
    config = RunConfig(method="fedmf", dataset="small", options=options, rounds=2)
    train(config, data, out=place / "run", threads=1)
    return place / "run", data


@pytest.mark.parametrize("count", COUNTS)
def test_run_folders(finished, tmp_path, count):
    good, data = finished
    folder = tmp_path / "run"
    shutil.copytree(good, folder)
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}

    def attempt(draw: random.Random) -> None:
        name = draw.choice(list(files))
        change = json_of if name.endswith(".json") else bytes_of
        (folder / name).write_bytes(change(draw, files[name]))
        try:
            run = Run.open(folder, data=data)
            run.recommend("u1", 3)
        finally:
            (folder / name).write_bytes(files[name])

    taken, refused = fuzz(count, attempt)
    assert taken and refused


@pytest.mark.parametrize("count", COUNTS)
def test_data_files(tmp_path, count):
    def attempt(draw: random.Random) -> None:
        path = tmp_path / f"own.{draw.choice(('csv', 'tsv'))}"
        content = TABLE if path.suffix == ".csv" else TABLE.replace(b",", b"\t")
        path.write_bytes(bytes_of(draw, content))
        load(path, min_interactions=0)

    taken, refused = fuzz(count, attempt)
    assert taken and refused


@pytest.mark.parametrize("count", COUNTS)
def test_exports_of_histories(device, tmp_path, count):
    """In a process that has not loaded torch, so that its memory is the import's."""
    done = python(Path(__file__).with_name("exports.py"), device.path, tmp_path, count)
    assert done.code == 0, done.stderr
    found = json.loads(done.stdout)
    assert "torch" not in found["modules"]
    assert found["kinds"].keys() == {kind.name for kind in KINDS}
    assert {kind.format for kind in KINDS} == READERS.keys()
    for kind, (taken, refused) in found["kinds"].items():
        assert taken and refused, kind
    assert sum(map(sum, found["kinds"].values())) == count
    assert done.peak < _IMPORT_MEGABYTES
    assert device.status()["database"] == "ok"
