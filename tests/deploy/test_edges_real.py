"""An edge with three members and two nodes of their own, over real processes, TLS and keys."""

from __future__ import annotations

import os
import shutil
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import pytest
from real import RealFederation, people

from commands import environment
from solera.deploy.common.authority import make_keys
from solera.deploy.common.envelopes import member_number
from solera.deploy.common.flower import Address
from solera.deploy.common.known_keys import public_key_of
from solera.deploy.node.membership import pin
from solera.deploy.operate import superlink
from solera.deploy.operate.processes import free_port
from solera.deploy.secure.roster import ROSTER, make_roster
from solera.deploy.server.folder import FederationFolder
from solera.device.device import Device

pytestmark = [
    pytest.mark.skipif("SOLERA_DATA" not in os.environ, reason="needs the data sets"),
    pytest.mark.xdist_group("real"),
]
MEMBERS, NODES = (1, 2, 3), 5


@pytest.mark.slow
@pytest.mark.parametrize("masked", [False, True])
def test_three_members_and_two_nodes(tmp_path, key, monkeypatch, start, masked):
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    keys, edge_keys, own = tmp_path / "keys", tmp_path / "edge", tmp_path / "own"
    make_keys(keys, NODES)
    make_keys(edge_keys, 0)
    make_keys(own, 1)
    for number in MEMBERS:
        shutil.copy(keys / "nodes" / f"node-{number}.pub", edge_keys / "nodes")
    with RealFederation(
        tmp_path, keys=keys, key=key, data=people(), method="fedmf", users=[3] * NODES
    ) as real:
        roster = make_roster(keys) if masked else None
        if roster:
            (keys / ROSTER).write_text(roster.model_dump_json())
            for number, device in enumerate(real.devices, start=1):
                assert pin(device, keys / "nodes" / f"node-{number}", keys / "ca.pem", None)
        real.start_server()
        superlink.register(real.folder, [own / "nodes" / "node-1.pub"])
        port = free_port()
        start(
            *("edge", "start", edge_keys, "--superlink", real.address, "--ca", keys / "ca.pem"),
            *("--key", own / "nodes" / "node-1", "--port", port),
            until="takes part, for 3 members",
        )
        real.behind |= set(MEMBERS)
        real.ways |= dict.fromkeys(MEMBERS, Address("127.0.0.1", port, edge_keys / "ca.pem"))
        with ThreadPoolExecutor(NODES) as pool:
            deque(pool.map(real.start_node, range(1, NODES + 1)), maxlen=0)
        real.prepare(rounds=2, min_nodes=3, secure_aggregation=masked)
        if roster:
            FederationFolder(real.folder).keep_roster(roster)
        real.fault(4, "slow 1")
        real.run(connections=3)
        assert [(each["clients"], each["rejected"]) for each in real.history] == [(15, {})] * 2
        assert {s["messages"] for each in real.history for s in each["stages"].values()} == {6}
        assert real.difference_from_simulation(2) < 1e-8
        numbers = [member_number(public_key_of(keys / "nodes" / f"node-{n}.pub")) for n in MEMBERS]
        assert [real.nodes[n].node_id for n in MEMBERS] == list(map(str, numbers))
        for path in real.devices:
            opened = Device.open(path)
            sent = [each["kind"] for each in opened.outbox()]
            opened.close()
            assert sent.count("enrol") == sent.count("finish") == 1
            assert sent.count("mask" if masked else "train") == 2
