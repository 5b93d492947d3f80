"""Whatever a stranger sends: taken, or refused with a reason; no crash, no hang, no memory without bound.

A hundred thousand inputs each: pytest -m slow tests/fuzz
"""

from __future__ import annotations

import json
import logging
import random
import shutil
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the deploy extra")

from exports import KINDS, TABLE
from flwr.app import ArrayRecord, ConfigRecord, RecordDict
from mutations import array, bytes_of, fuzz, json_of, structure

from measured import python
from solera.core.errors import SoleraError
from solera.data.datasets import load
from solera.data.interactions import Interactions
from solera.deploy.coordinator import Coordinator
from solera.deploy.folder import FederationFolder
from solera.deploy.messages import from_content, to_content
from solera.deploy.node import Node
from solera.deploy.protocol import Packet
from solera.deploy.settings import Settings
from solera.device.bundle import Bundle, Item
from solera.device.device import Device
from solera.device.importers import READERS
from solera.device.keys import make_keys
from solera.device.ledger import Ledger
from solera.device.policy import Policy
from solera.device.publish import start
from solera.methods import find
from solera.runs import Run, RunConfig, train

ITEMS = 12
COUNTS = [400, pytest.param(100_000, marks=pytest.mark.slow)]
_IMPORT_MEGABYTES = 300  # that importing may take, whatever the file is


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


def odd_packet(draw: random.Random, good: Packet) -> Packet:
    """Fields or arrays that are wrong, or both."""
    fields, arrays = good.fields, dict(good.arrays)
    if draw.random() < 0.6:
        changed = structure(draw, fields)
        fields = changed if isinstance(changed, dict) else {"odd": changed}
    if arrays and draw.random() < 0.6:
        name = draw.choice(list(arrays))
        if draw.random() < 0.2:
            arrays[draw.choice(("extra", "", name + "x"))] = arrays.pop(name)
        else:
            arrays[name] = array(draw, arrays[name])
    return Packet(fields, arrays)


def odd_record(draw: random.Random, packet: Packet) -> RecordDict:
    """The same as Flower carries it, and what may be wrong there."""
    content = to_content(packet)
    match draw.randrange(8):
        case 0:
            content["fields"] = ConfigRecord(
                {"fields": json_of(draw, json.dumps(packet.fields).encode()).decode("latin-1")}
            )
        case 1:
            content["more"] = ConfigRecord({"x": 1})
        case 2 if packet.arrays:
            name = draw.choice(list(packet.arrays))
            made = content["arrays"][name]
            match draw.randrange(4):
                case 0:
                    made.data = bytes_of(draw, made.data)
                case 1:
                    made.dtype = draw.choice(("<f4", "<f8", "<i4", "O", "<U9", "", "V8", "<M8"))
                case 2:
                    made.shape = draw.choice(((-1,), (0,), (10**12,), (2**63,), (3, -1), (), tuple([1] * 70)))
                case _:
                    made.stype = draw.choice(("numpy.ndarray", "", "pickle"))
            content["arrays"] = ArrayRecord({**content["arrays"], name: made})
        case _:
            pass
    return content


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
            Coordinator.enrol(coordinator, 2, from_content(odd_record(draw, odd_packet(draw, enrolment))))
            return
        now.answered.clear()
        coordinator.take(1, from_content(odd_record(draw, odd_packet(draw, good))))

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
        answer = node.answer(kind, from_content(odd_record(draw, odd_packet(draw, good))))
        assert answer.arrays.keys() in (set(), wanted)
        if "declined" in answer.fields:
            raise SoleraError("declined")

    taken, refused = fuzz(count, attempt)
    assert taken and refused > count / 4
    assert device.status()["database"] == "ok"
    assert device.history("a") == ["0", "1", "2", "3"]


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
