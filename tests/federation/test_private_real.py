"""Differential privacy by the command, over real processes: nodes clip, the server covers, ε is stated."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from real import few_nodes

from commands import solera
from solera.device.device import Device
from solera.dp.noise import Seeded
from solera.dp.rounds import PrivateRounds
from solera.dp.settings import DP

pytestmark = [
    pytest.mark.skipif("SOLERA_DATA" not in os.environ, reason="needs the data sets"),
    pytest.mark.xdist_group("real"),
]


@pytest.mark.slow
def test_three_nodes(tmp_path, key, monkeypatch):
    """Under next to no noise, two rounds end where those of the simulator do; then, no third."""
    with few_nodes(tmp_path, key, monkeypatch, masked=False) as real:
        asked = ("federation", "run", real.folder, "--json")
        with_dp = ("--bundle", real.bundle.path, "--nodes", 3, "--rounds", 2, "--dp")
        done = solera(*asked, *with_dp, "noise=1e-6,delta=1e-5,clip=0.01", timeout=300)
        assert done.returncode == 0, done.stderr
        assert "noise is operating system" in done.stderr
        found = json.loads(done.stdout)
        assert (found["last_round"]["round"], found["last_round"]["clients"]) == (2, 15)
        stated = found["privacy"]
        assert (stated["clip"], stated["noise_multiplier"], stated["rounds"]) == (0.01, 1e-6, 2)
        private = PrivateRounds(DP(noise=1e-6, delta=1e-5, clip=0.01), 1.0, 15, Seeded(0))
        assert real.difference_from_simulation(2, private) < 1e-6
        assert real.difference_from_simulation(2) > 1e-3
        for path in real.devices:
            device = Device.open(path)
            steps = [each["steps"] for each in device.outbox()]
            device.close()
            assert [each[:1] for each in steps] == [[], ["clip 0.01"], ["clip 0.01"], []]
        more = solera(*asked, "--resume", "--rounds", 3)
        assert more.returncode != 0
        assert "was computed for 2 rounds, not for 3" in more.stderr
        assert np.array_equal([line["round"] for line in real.history], [1, 2])


@pytest.mark.slow
def test_shares_under_masks(tmp_path, key, monkeypatch):
    """The same where nodes add the noise, and the server sees sums alone."""
    with few_nodes(tmp_path, key, monkeypatch, masked=True) as real:
        asked = ("federation", "run", real.folder, "--json", "--secure-aggregation", "--roster")
        few = ("--least-nodes", 2, "--least-users", 1)
        given = ("--bundle", real.bundle.path, "--nodes", 3, "--rounds", 1, *few, "--dp")
        settings = "noise=1e-6,delta=1e-5,clip=0.01,mode=distributed"
        done = solera(*asked, real.keys / "roster.json", *given, settings, timeout=300)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert found["last_round"]["masked"] == {"members": 3, "threshold": 3, "survivors": 3}
        assert found["privacy"]["mode"] == "distributed"
        private = PrivateRounds(DP(noise=1e-6, delta=1e-5, clip=0.01), 1.0, 15, Seeded(0))
        assert real.difference_from_simulation(1, private) < 1e-6
        device = Device.open(real.devices[0])
        steps = [each["steps"] for each in device.outbox()]
        device.close()
        assert [each[:2] for each in steps if each[:1] != ["masked"]] == [
            [],
            ["clip 0.01", "noise 1e-06"],
            [],
        ]
