"""What a kill or a power cut leaves behind: no round twice, no budget lost, no folder that cannot open."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

import pytest
from attack import attack
from opened import declined

from solera.core.errors import RunError
from solera.federation.common.protocol import Packet
from solera.federation.node.masked_round import open_node
from solera.federation.operate.metrics import FolderCollector
from solera.federation.server.folder import FederationFolder

NOISE = {"noise": 2.0, "delta": 1e-5, "clip": 1.0}


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


@pytest.mark.parametrize("mode", ["masked", "masked with noise"])
@attack(
    "crash",
    "An opened sum is on the disk before it is opened: no power cut makes it free.",
    before="one opened sum more than was accounted for; without noise, it was not written down at all",
)
def test_a_power_cut_after_the_opening(five, monkeypatch, mode, reached):
    """What was synced before the first node is asked to reveal."""
    federation = five(**({"dp": NOISE | {"mode": "distributed"}} if "noise" in mode else {}))
    synced: list[str] = []
    real = os.fsync

    def fsync(handle: int) -> None:
        synced.append(Path(f"/proc/self/fd/{handle}").readlink().name)
        real(handle)

    class PowerCutError(Exception):
        pass

    def cut(node: int, kind: str, packet: Packet) -> Packet:
        if kind == "unmask":
            raise PowerCutError
        return packet

    federation.forge = cut
    monkeypatch.setattr("os.fsync", fsync)
    with pytest.raises(PowerCutError):
        federation.round()
    for name in ("openings.jsonl", ".opening.json.", ".sum-0.bin."):
        assert any(each.startswith(name) for each in synced), name
    assert federation.server.opened_rounds() == {0}
    reached("synced before the first node is asked")


@pytest.mark.parametrize("moment", ["confirm", "unmask", "save"])
@attack(
    "crash",
    "A server that is killed while it opens a sum ends that round: no second sum of it is opened.",
    before="the round was run again over seven of eight nodes, from the same state with the same draws",
)
def test_a_kill_while_a_sum_is_opened(five, monkeypatch, moment, reached):
    federation = five()

    class KilledError(Exception):
        pass

    def killed(*_: object) -> None:
        raise KilledError

    answered: list[int] = []

    def lost(node: int, kind: str, packet: Packet) -> Packet:
        if kind == moment:
            answered.append(node)
            if len(answered) == 5:  # nodes answer in any order
                raise KilledError
        return packet

    federation.tamper = lost
    with monkeypatch.context() as patched, pytest.raises(KilledError):
        if moment == "save":
            patched.setattr(FederationFolder, "save", killed)
        federation.round()
    federation.tamper = lambda node, kind, packet: packet
    federation.restart_server()
    online = {100, 101, 102, 103}  # one node is gone
    entry = federation.round(online, attempt=1)
    if moment == "confirm":  # nobody has revealed anything: the sum of the next attempt is the only one
        assert entry["masked"]["survivors"] == 4
        assert federation.server.opened_rounds() == {0}
    else:
        assert entry["masked"]["survivors"] == 5
        assert federation.server.opened_rounds() == {0}
    reached("the same sum is opened, or none")


@attack(
    "crash",
    "A full disk is an error with a next step, and nothing is lost by it.",
    before="a traceback, and a torn line that stopped later starts",
)
def test_a_full_disk(five, monkeypatch, reached):
    federation = five()
    federation.round()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched, pytest.raises(RunError) as found:
        patched.setattr("os.fsync", full)
        federation.round()
    assert "make room on the disk" in found.value.hint
    federation.restart_server()
    assert federation.round() is not None
    assert [line["round"] for line in federation.server.lines("history.jsonl")] == [1, 2]
    reached("error with a next step; the round is done after that")


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


@attack(
    "crash",
    "A node that is lost for good after it signed a list does not stop the federation.",
    before="the next attempt went on, over a cohort that differed by that node alone",
)
def test_a_node_lost_after_it_has_signed(five, reached):
    """Who has signed and not revealed may be in another cohort: the secrets of the first are erased by it."""
    federation = five(least_users=3)
    federation.tamper = lambda node, kind, packet: (
        None if kind == "confirm" and node in (102, 103, 104) else packet
    )
    assert federation.round() is None
    federation.tamper = lambda node, kind, packet: packet
    entry = federation.round({100, 101, 102, 103}, attempt=1)
    assert entry is not None
    assert entry["masked"]["survivors"] == 4
    assert declined(federation) == []
    assert federation.server.opened_rounds() == {0}
    reached("the next attempt is over the others; the first list can never be opened")
