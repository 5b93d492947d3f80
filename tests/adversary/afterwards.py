"""What must hold of a federation whatever was killed, read from its files alone."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

from solera.device.device import Device
from solera.device.ledger import Ledger, Stage
from solera.dp.settings import DP
from solera.federation.node.masked_round import open_node
from solera.federation.server.coordinator import Coordinator
from solera.federation.server.folder import FederationFolder
from solera.runs.settings import releases


def numbers(folder: Path, name: str) -> list[int]:
    return [line["round"] for line in FederationFolder(folder).lines(name)]


def entries(home: Path) -> list[sqlite3.Row]:
    """The ledger of a device, as it is in the file."""
    connection = sqlite3.connect(f"file:{home / 'device.db'}?mode=ro", uri=True)
    connection.row_factory = sqlite3.Row
    try:
        return connection.execute("SELECT * FROM rounds WHERE context IS NOT NULL ORDER BY id").fetchall()
    finally:
        connection.close()


def revealed(homes: list[Path]) -> dict[int, Counter[str]]:
    """By round: how many nodes gave shares, by the digest of the terms that they gave them for."""
    found: dict[int, Counter[str]] = {}
    for home in homes:
        for entry in entries(home):
            if entry["stage"] == Stage.REVEALED:
                terms = hashlib.sha256(entry["terms"].encode()).hexdigest()
                found.setdefault(entry["round"], Counter())[terms] += 1
    return found


def check_rounds(folder: Path, homes: list[Path]) -> None:
    """No round was counted twice, and no two sums of one round were opened."""
    history, opened = numbers(folder, "history.jsonl"), numbers(folder, "openings.jsonl")
    shares = revealed(homes)
    assert history == sorted(set(history))
    assert opened == sorted(set(opened))
    assert all(len(terms) == 1 for terms in shares.values())
    for home in homes:
        mine = [entry["round"] for entry in entries(home) if entry["stage"] == Stage.REVEALED]
        assert mine == sorted(set(mine))
    assert set(shares) <= set(opened)  # written down before anybody was asked
    assert {round_ - 1 for round_ in history} <= set(shares)


def check_account_of_server(folder: Path, homes: list[Path]) -> None:
    """No sum was opened that ε was not accounted for, and none is forgotten."""
    federation = FederationFolder.open(folder)
    coordinator, stated, dp = Coordinator(federation), federation.privacy, federation.identity.settings.dp
    assert stated is not None
    assert dp is not None
    true, recorded = len(revealed(homes)), len(numbers(folder, "openings.jsonl"))
    assert true <= recorded <= stated["rounds"]
    afresh = DP(noise=dp.noise, delta=dp.delta, clip=dp.clip, mode=dp.mode)
    found = afresh.resolved(releases(coordinator.method, true)).epsilon
    assert found is not None
    assert found <= stated["epsilon"]
    assert coordinator.pending is None
    assert coordinator.progress.number > max(numbers(folder, "openings.jsonl"))
    lost = recorded - coordinator.progress.rounds_done
    assert lost >= 0
    assert coordinator.rounds == federation.identity.settings.rounds - lost
    assert coordinator.progress.rounds_done >= len(numbers(folder, "history.jsonl"))


def check_account_of_device(home: Path, federation: str, noise: float) -> int:
    """Every upload that left is in the ledger, and costs; returns how many there were."""
    device = Device.open(home)
    try:
        assert device.status()["database"] == "ok"
        ledger = Ledger(device.store)
        uploads = sum(entry["stage"] >= Stage.UPLOADED for entry in entries(home))
        assert uploads == ledger.uploads(federation)
        assert uploads == sum(each["kind"] == "mask" for each in device.outbox())
        assert uploads >= _sent(home)
        assert ledger.spent(federation).here >= uploads * noise**-2 * (1 - 1e-9)
        assert not any(entry["secrets"] for entry in entries(home))  # the federation has ended
        open_node(device, 1)
    finally:
        device.close()
    return uploads


def _sent(home: Path) -> int:
    """Masked uploads that the worker's log tells of."""
    sent = 0
    for text in (home / "network" / "worker.log").read_text().splitlines():
        try:
            line = json.loads(text)
        except ValueError:  # cut short by a kill
            continue
        sent += line["message"] == "answered" and line["kind"] == "mask"
        sent -= line["message"].startswith("declined to mask")
    return sent


def times_of(home: Path, user: str) -> set[int]:
    """Of all interactions of a user."""
    device = Device.open(home)
    try:
        rows = device.store.rows(
            "SELECT time FROM interactions WHERE user = (SELECT id FROM users WHERE name = ?)", user
        )
        return {int(row["time"]) for row in rows}
    finally:
        device.close()


def causes(folder: Path) -> dict[str, Any]:
    """What went wrong on the way, by kind."""
    events = FederationFolder(folder).lines("events.jsonl")
    return {
        "events": dict(Counter(event["event"] for event in events)),
        "rejected": dict(Counter(event["reason"] for event in events if event["event"] == "rejected")),
    }
