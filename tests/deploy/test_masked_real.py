"""A masked round over real processes, TLS and keys: the sum is the plain one, and nothing else was sent."""

from __future__ import annotations

import os

import pytest
from commands import environment, solera
from real import RealFederation, people

from solera.deploy.authority import make_keys
from solera.deploy.folder import FederationFolder
from solera.deploy.roster import read_roster
from solera.deploy.secure_round import STAGES
from solera.deploy.supernode import pin
from solera.device.device import Device

pytestmark = [
    pytest.mark.skipif("SOLERA_DATA" not in os.environ, reason="needs the data sets"),
    pytest.mark.xdist_group("real"),
]


@pytest.mark.slow
def test_three_nodes(tmp_path, key, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    keys = tmp_path / "keys"
    make_keys(keys, 3)
    made = solera("federation", "roster", keys, "--json")
    assert made.returncode == 0, made.stderr
    with RealFederation(tmp_path, keys=keys, key=key, data=people(), method="fedmf", users=[5, 5, 5]) as real:
        for number, device in enumerate(real.devices, start=1):
            assert pin(device, keys / "nodes" / f"node-{number}", keys / "ca.pem", None)
        real.start()
        real.prepare(rounds=1, min_nodes=3, secure_aggregation=True)
        FederationFolder(real.folder).keep_roster(read_roster(keys / "roster.json", keys / "ca.pem"))
        real.run()
        (entry,) = real.history
        assert (entry["clients"], entry["rejected"]) == (15, {})
        assert entry["masked"] == {"members": 3, "threshold": 3, "survivors": 3}
        assert real.difference_from_simulation(1) < 1e-8
        for path in real.devices:
            device = Device.open(path)
            sent = device.outbox()
            device.close()
            assert [each["steps"][-1:] for each in sent] == [[], *[["masked"]] * len(STAGES), []]
