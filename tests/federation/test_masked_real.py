"""A masked round over real processes, TLS and keys: the sum is the plain one, and nothing else was sent."""

from __future__ import annotations

import os

import pytest
from real import few_nodes

from solera.device.device import Device
from solera.federation.secure.roster import make_roster
from solera.federation.server.folder import FederationFolder
from solera.federation.server.masked_round import STAGES

pytestmark = [
    pytest.mark.skipif("SOLERA_DATA" not in os.environ, reason="needs the data sets"),
    pytest.mark.xdist_group("real"),
]


@pytest.mark.slow
def test_three_nodes(tmp_path, key, monkeypatch):
    with few_nodes(tmp_path, key, monkeypatch, masked=True) as real:
        real.prepare(rounds=1, min_nodes=3, secure_aggregation=True)
        roster = make_roster(real.keys)
        FederationFolder(real.folder).keep_roster(roster)
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
