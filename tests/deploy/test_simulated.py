"""The apps in Flower's simulation engine, by the command."""

from __future__ import annotations

import json

import pytest
import torch

import in_process
from closed_forms import closed_form
from commands import solera
from federation import ITEMS, fill
from solera.core.closed_form import WEIGHTS
from solera.data.ragged import Ragged
from solera.data.sampling import ClientData
from solera.deploy.server.folder import FederationFolder
from solera.device.device import Device
from solera.device.publish import start
from solera.engine import OneRound


@pytest.mark.slow
def test_the_sums_of_simulated_nodes_are_those_of_all_histories(key, catalogue, histories, tmp_path):
    bundle = start("fedease", catalogue, tmp_path / "x.bundle", key, precision="double")
    folder = tmp_path / "films"
    for node, users in enumerate((range(6), range(6, 11))):
        device = Device.create(folder / "nodes" / str(node), bundle)
        fill(device, {f"u{user}": [str(item) for item in histories[user]] for user in users})
        device.close()
    done = solera("federation", "simulate", folder, "--bundle", bundle.path, timeout=180)
    assert "1 rounds are done · 11 clients on 2 nodes" in done.stdout, done.stderr
    saved = FederationFolder.open(folder).load()
    assert saved is not None
    known = Ragged.from_lists(histories)
    alone = OneRound(
        closed_form("fedease"),
        ClientData(known, known, ITEMS),
        device=torch.device("cpu"),
        dtype=torch.float64,
    )
    alone.run_round(0)
    assert torch.allclose(saved[1].shared[WEIGHTS], alone.state.shared[WEIGHTS], atol=1e-9)
    device = Device.open(folder / "nodes" / "1")
    assert len(device.recommend(3, user="u7")) == 3
    device.close()


@pytest.mark.slow
def test_the_guarantee_is_stated_before_and_after(key, catalogue, histories, tmp_path):
    bundle = start("fedease", catalogue, tmp_path / "x.bundle", key, precision="double")
    device = Device.create(tmp_path / "films" / "nodes" / "0", bundle)
    fill(device, {f"u{user}": [str(item) for item in histories[user]] for user in range(6)})
    device.close()
    given = ("--bundle", bundle.path, "--dp", "epsilon=8,delta=1e-5,clip=20", "--json")
    done = solera("federation", "simulate", tmp_path / "films", *given, timeout=400)
    assert "privacy: ε = 8, δ = 1e-05 per user (add or remove one user), central" in done.stderr
    found = json.loads(done.stdout)
    assert found["last_round"]["clients"] == 6
    assert (found["privacy"]["epsilon"], found["privacy"]["accountant"]) == (8, "rdp")
    assert json.loads((tmp_path / "films" / "privacy.json").read_text()) == found["privacy"]
    assert [each["steps"][:1] for each in Device.open(device.path).outbox()] == [[], ["clip 20"], []]


def test_no_devices(tmp_path):
    done = in_process.solera("federation", "simulate", tmp_path, "--bundle", tmp_path / "x.bundle")
    assert done.returncode == 2
    assert "contains no devices (nodes/0" in done.stderr
    assert "solera device init" in done.stderr
