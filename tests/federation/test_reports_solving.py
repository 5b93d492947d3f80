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
from solera.device.bundle import Bundle, fingerprint
from solera.device.device import Device
from solera.device.keys import make_keys
from solera.device.page import CONTRIBUTE, Collected, write_page
from solera.device.publish import start, trained_on_devices
from solera.device.reports import asks_for_order
from solera.engine import OneRound
from solera.federation.reports.start import server_database, server_key
from solera.privacy.reports.measurements import ITEM, ORDERED, PAIR, Measurement, measurements
from solera.privacy.reports.server import Server
from threshold_reports import Federation

LEAST, NEWEST, N_ITEMS = 2, 4, 7
OPTIONS: dict[str, dict[str, object]] = {
    "fedease": {"neighbours": N_ITEMS, "newest": NEWEST, "reg": 2.0},
    "fedslist": {
        "neighbours": N_ITEMS,
        "newest": NEWEST,
        "least_clients": LEAST,
        "compact": True,
        "decays": (0.7,),
        "horizon": 1,
    },
}


@pytest.fixture(scope="module")
def histories():
    draw = np.random.default_rng(4)
    return [draw.permutation(N_ITEMS)[: draw.integers(2, NEWEST + 1)].tolist() for _ in range(16)]


@pytest.fixture
def folder(tmp_path, histories, old):
    """Of a server that has counted one night."""
    federation = Federation(LEAST, reports=NEWEST * (NEWEST + 1) // 2)
    folder = tmp_path / "server"
    key = server_key(folder)
    federation.server = Server(server_database(folder, None), key)
    for device, history in enumerate(histories):
        federation.send(0, str(device), measurements(history, NEWEST, ordered=asks_for_order(old)))
    federation.end(0)
    return folder


@pytest.fixture(params=OPTIONS)
def old(request, tmp_path, key, catalogue):
    options = OPTIONS[request.param]
    return start(request.param, catalogue[:N_ITEMS], tmp_path / "films.bundle", key, options=options)


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

    name = old.manifest.method
    method = closed_form(name, OPTIONS[name] | {"least_clients": LEAST})
    known = Ragged.from_lists(histories)
    data = ClientData(known, known, N_ITEMS)
    simulated = OneRound(method, data, device=torch.device("cpu"), dtype=torch.float64)
    simulated.run_round(0)
    shared = {name: simulated.state.shared[name] for name in (NEIGHBOURS, WEIGHTS)}
    shared[WEIGHTS] = shared[WEIGHTS].float()
    expected = trained_on_devices(old, shared, tmp_path / "expected.bundle", key, {})
    made = Bundle.open(tmp_path / "new.bundle")
    assert made.manifest.sha256 == expected.manifest.sha256  # weights and catalogue, to the last bit
    assert made.manifest.trained["federation"] == "films"
    asked = {
        "helper": "https://helper.example",
        "server": "ab" * 32,
        "federation": "films",
        "least_devices": LEAST,
    }
    write_page(made, tmp_path / "page", collected=Collected.model_validate(asked))
    store = f"solera {fingerprint(made.key)} undefined"  # as web/src/main.tsx names it
    assert store in (tmp_path / "page" / CONTRIBUTE).read_text()
    device.update(made.path)
    assert len(device.recommend(3)) == 3
    device.close()


def test_an_option_of_the_method(folder, old, key, tmp_path):
    option = {"fedease": "reg", "fedslist": "ridge"}[old.manifest.method]
    assert solve(folder, old, key, tmp_path / "a.bundle").returncode == 0
    done = solve(folder, old, key, tmp_path / "b.bundle", "-O", f"{option}=50")
    assert done.returncode == 0, done.stderr
    first, second = (Bundle.open(tmp_path / name) for name in ("a.bundle", "b.bundle"))
    assert second.manifest.options[option] == 50
    assert first.manifest.sha256 != second.manifest.sha256


def test_made_up_items_are_left_out(folder, old, key, tmp_path):
    assert solve(folder, old, key, tmp_path / "a.bundle").returncode == 0
    database = server_database(folder, None)
    with database:
        of_another_kind = Measurement(PAIR if asks_for_order(old) else ORDERED, 1, 2)
        too_far = Measurement(ORDERED, 1, 2, lag=3)  # at most NEWEST - 1 places apart
        no_items = (Measurement(PAIR, 3, N_ITEMS), Measurement(ITEM, 2**32 - 1, 2**32 - 1))
        for made_up in (of_another_kind, too_far, *no_items):
            database.execute("INSERT INTO counts VALUES ('films', 1, ?, 1000)", (made_up.encoded(),))
    done = solve(folder, old, key, tmp_path / "b.bundle")
    assert json.loads(done.stdout)["left_out"] == 4
    first, second = (Bundle.open(tmp_path / name) for name in ("a.bundle", "b.bundle"))
    assert first.manifest.sha256 == second.manifest.sha256


def test_what_cannot_be_solved_is_refused_and_writes_nothing(folder, old, key, catalogue, tmp_path):
    other = tmp_path / "other"
    make_keys(other)
    fedmf = start("fedmf", catalogue[:N_ITEMS], tmp_path / "fedmf.bundle", key)
    output = tmp_path / "new.bundle"
    nobody = ("--federation", "nobody", "--bundle", old.path, "-o", output, "--key", key)
    for done, why in (
        (solve(folder, old, f"{other}.key", output), "not the key that signed"),
        (solve(folder, fedmf, key, output), "is of fedmf"),
        (solve(folder, old, key, output, "-O", "newest=-1"), "newest"),
        (solera("helper", "solve", folder, *nobody), "no pair of items"),
    ):
        assert done.returncode
        assert why in done.stderr, done.stderr
        assert "Traceback" not in done.stderr
    assert not output.exists()
