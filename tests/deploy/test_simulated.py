"""The apps in Flower's simulation engine, by the command."""

from __future__ import annotations

import torch
from commands import solera
from federation import ITEMS, fill

from solera.data.ragged import Ragged
from solera.data.sampling import ClientData
from solera.deploy.folder import FederationFolder
from solera.device.device import Device
from solera.device.publish import start
from solera.engine import OneRound
from solera.engine.one_round import WEIGHTS
from solera.methods import find


def test_the_sums_of_simulated_nodes_are_those_of_all_histories(key, catalogue, histories, tmp_path):
    bundle = start("fedease", catalogue, tmp_path / "x.bundle", key, precision="double")
    folder = tmp_path / "films"
    for node, users in enumerate((range(6), range(6, 11))):
        device = Device.create(folder / "nodes" / str(node), bundle)
        fill(device, {f"u{user}": [str(item) for item in histories[user]] for user in users})
        device.close()
    done = solera("federation", "simulate", folder, "--bundle", bundle.path)
    assert "1 rounds are done · 11 clients on 2 nodes" in done.stdout, done.stderr
    saved = FederationFolder.open(folder).load()
    assert saved is not None
    known = Ragged.from_lists(histories)
    alone = OneRound(
        find("fedease"), ClientData(known, known, ITEMS), device=torch.device("cpu"), dtype=torch.float64
    )
    alone.run_round(0)
    assert torch.allclose(saved[1].shared[WEIGHTS], alone.state.shared[WEIGHTS], atol=1e-9)
    device = Device.open(folder / "nodes" / "1")
    assert len(device.recommend(3, user="u7")) == 3
    device.close()


def test_no_devices(tmp_path):
    done = solera("federation", "simulate", tmp_path, "--bundle", tmp_path / "x.bundle")
    assert done.returncode == 2
    assert "has no devices nodes/0" in done.stderr
    assert "solera device init" in done.stderr
