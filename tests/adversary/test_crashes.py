"""What a kill or a power cut leaves behind: no round twice, no budget lost, no folder that cannot open."""

from __future__ import annotations

import sqlite3

import pytest
from attack import attack

from solera.deploy import secure_round
from solera.deploy.metrics import FolderCollector
from solera.deploy.secure import open_node

NOISE = {"noise": 2.0, "delta": 1e-5, "clip": 1.0}


@pytest.mark.xfail(strict=True, reason="a torn line stays")
@pytest.mark.parametrize("name", ["events.jsonl", "history.jsonl"])
@attack(
    "crash",
    "A line that a kill cut short never stops a server from starting.",
    before="JSONDecodeError at every later start and for every reader of the metrics",
)
def test_a_torn_line(world, name, reached):
    federation = world(masked=False, sizes=(3, 3, 3), dp=NOISE)
    federation.round()
    federation.round()
    path = federation.server.path / name
    path.write_bytes(path.read_bytes()[:-20])
    federation.restart_server()
    federation.server.event("started")
    federation.round()
    federation.restart_server()
    list(FolderCollector(federation.server.path).collect())
    reached("repaired")


@pytest.mark.xfail(strict=True, reason="the line is not synced")
@attack(
    "crash",
    "An opened sum is on the disk before it is opened: no power cut makes it free.",
    before="one opened sum more than was accounted for",
)
def test_a_power_cut_after_the_opening(world, monkeypatch, reached):
    synced: list[int] = []
    monkeypatch.setattr("os.fsync", synced.append)
    federation = world(dp=NOISE | {"mode": "distributed"}, rounds=3)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(secure_round.MaskedRound, "_conclude", die)
    synced.clear()
    with pytest.raises(KeyboardInterrupt):
        federation.round()
    assert synced
    reached("synced before the opening")


@pytest.mark.xfail(strict=True, reason="refusals are not recorded")
@attack(
    "lying server",
    "A refusal is in the outbox too, and names no place on the device.",
    before="refusals left unrecorded, with the device's path",
)
def test_a_refusal(world, reached):
    federation = world(masked=False)
    federation.round()
    device = federation.devices[100]
    order = federation.coordinator.begin(0, set(federation.devices))[100]
    before = len(device.outbox())
    other = sqlite3.connect(device.path / "device.db", isolation_level=None)
    device.store.connection.execute("PRAGMA busy_timeout = 200")
    node = open_node(device, 1)
    other.execute("BEGIN IMMEDIATE")
    answer = node.answer("train", order)
    other.execute("ROLLBACK")
    assert str(device.path) not in str(answer.fields)
    node.answer("no such kind", order)
    assert len(device.outbox()) > before
    reached("recorded; no path")
