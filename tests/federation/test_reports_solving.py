"""From a server's counts to a bundle: what devices get is what the sums of all histories would have given."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from closed_forms import closed_form
from in_process import solera
from solera.core.closed_form import NEIGHBOURS, WEIGHTS
from solera.data.ragged import Ragged
from solera.data.sampling import ClientData
from solera.device.bundle import Bundle
from solera.device.device import Device
from solera.device.keys import make_keys
from solera.device.publish import start, trained_on_devices
from solera.engine import OneRound
from solera.federation.reports.start import server_database, server_key
from solera.privacy.reports.measurements import Measurement, measurements
from solera.privacy.reports.server import Server
from threshold_reports import Federation

LEAST, NEWEST, ITEMS = 2, 4, 7
OPTIONS = {"neighbours": ITEMS, "newest": NEWEST, "reg": 2.0}


@pytest.fixture(scope="module")
def histories():
    draw = np.random.default_rng(4)
    return [draw.permutation(ITEMS)[: draw.integers(2, NEWEST + 1)].tolist() for _ in range(16)]


@pytest.fixture
def folder(tmp_path, histories):
    """Of a server that has counted one night."""
    federation = Federation(LEAST, reports=NEWEST * (NEWEST + 1) // 2)
    folder = tmp_path / "server"
    key = server_key(folder)
    federation.server = Server(server_database(folder, None), key)
    for device, history in enumerate(histories):
        federation.send(0, str(device), measurements(history, NEWEST))
    federation.end(0)
    return folder


@pytest.fixture
def old(tmp_path, key, catalogue):
    return start("fedease", catalogue[:ITEMS], tmp_path / "films.bundle", key, options=OPTIONS)


def solve(folder, old, key, output, *more):
    given = ("--federation", "films", "--bundle", old.path, "-o", output, "--key", key, *more)
    return solera("helper", "solve", folder, *given, "--json")


def test_a_device_gets_the_model_of_all_histories(folder, old, key, histories, tmp_path):
    device = Device.create(tmp_path / "me", old)
    device.add("2")
    done = solve(folder, old, key, tmp_path / "new.bundle")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["left_out"], found["bytes"]) == (0, (tmp_path / "new.bundle").stat().st_size)

    method = closed_form("fedease", OPTIONS | {"least_clients": LEAST})
    known = Ragged.from_lists(histories)
    data = ClientData(known, known, ITEMS)
    simulated = OneRound(method, data, device=torch.device("cpu"), dtype=torch.float64)
    simulated.run_round(0)
    shared = {name: simulated.state.shared[name] for name in (NEIGHBOURS, WEIGHTS)}
    shared[WEIGHTS] = shared[WEIGHTS].float()
    expected = trained_on_devices(old, shared, tmp_path / "expected.bundle", key, {})
    made = Bundle.open(tmp_path / "new.bundle")
    assert made.manifest.sha256 == expected.manifest.sha256  # weights and catalogue, to the last bit
    assert made.manifest.trained["federation"] == "films"
    device.update(made.path)
    assert len(device.recommend(3)) == 3
    device.close()


def test_an_option_of_the_method(folder, old, key, tmp_path):
    assert solve(folder, old, key, tmp_path / "a.bundle").returncode == 0
    done = solve(folder, old, key, tmp_path / "b.bundle", "-O", "reg=50")
    assert done.returncode == 0, done.stderr
    first, second = (Bundle.open(tmp_path / name) for name in ("a.bundle", "b.bundle"))
    assert second.manifest.options["reg"] == 50
    assert first.manifest.sha256 != second.manifest.sha256


def test_made_up_items_are_left_out(folder, old, key, tmp_path):
    assert solve(folder, old, key, tmp_path / "a.bundle").returncode == 0
    database = server_database(folder, None)
    with database:
        for made_up in (Measurement(1, 3, ITEMS), Measurement(0, 2**32 - 1, 2**32 - 1), Measurement(2, 1, 2)):
            database.execute("INSERT INTO counts VALUES ('films', 1, ?, 1000)", (made_up.encoded(),))
    done = solve(folder, old, key, tmp_path / "b.bundle")
    assert json.loads(done.stdout)["left_out"] == 3
    first, second = (Bundle.open(tmp_path / name) for name in ("a.bundle", "b.bundle"))
    assert first.manifest.sha256 == second.manifest.sha256


def test_what_cannot_be_solved_is_refused_and_writes_nothing(folder, old, key, catalogue, tmp_path):
    other = tmp_path / "other"
    make_keys(other)
    fedmf = start("fedmf", catalogue[:ITEMS], tmp_path / "fedmf.bundle", key)
    output = tmp_path / "new.bundle"
    nobody = ("--federation", "nobody", "--bundle", old.path, "-o", output, "--key", key)
    for done, why in (
        (solve(folder, old, f"{other}.key", output), "not the key that signed"),
        (solve(folder, fedmf, key, output), "is of fedmf"),
        (solve(folder, old, key, output, "-O", "reg=-1"), "reg"),
        (solera("helper", "solve", folder, *nobody), "no pair of items"),
    ):
        assert done.returncode
        assert why in done.stderr, done.stderr
        assert "Traceback" not in done.stderr
    assert not output.exists()
