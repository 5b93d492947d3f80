"""kill -9 of everything in a running federation, at any moment: SOLERA_KILLS=200 pytest -m slow -s …"""

from __future__ import annotations

import os
import time

import pytest
from afterwards import (
    causes,
    check_account_of_device,
    check_account_of_server,
    check_rounds,
    numbers,
    times_of,
)
from attack import attack
from under_kills import NODES, NOISE, UnderKills

from solera.federation.server.folder import FederationFolder

KILLS = int(os.environ.get("SOLERA_KILLS", "20"))
SEED = int(os.environ.get("SOLERA_KILLS_SEED", "7"))


@pytest.mark.slow
@pytest.mark.xdist_group("real")
@attack(
    "crash",
    "Whatever is killed, and when: no round counts twice, no second sum is opened, no cost is forgotten.",
    before="two apps at work on one federation after its command was killed",
)
def test_kills_at_any_moment(tmp_path, publisher_key, monkeypatch, reached):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)  # hundreds of programs are started
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path / "compiled"))
    federation = UnderKills(tmp_path, publisher_key, SEED)
    began = time.monotonic()

    def tell(text: str) -> None:
        print(f"{time.monotonic() - began:.0f} s: {text}", flush=True)

    with federation.kept():
        federation.storm(KILLS, tell)
        tell("no more kills")
        last = federation.finish()
    assert sum(federation.kills.values()) == KILLS
    assert last["masked"]["survivors"] == NODES
    check_rounds(federation.folder, federation.homes)
    check_account_of_server(federation.folder, federation.homes)
    id_ = FederationFolder(federation.folder).identity.federation
    uploads = [check_account_of_device(home, id_, NOISE) for home in federation.homes]
    for home, written in federation.written.items():
        assert set(written) <= times_of(home, "u0")
    rounds, opened = numbers(federation.folder, "history.jsonl"), numbers(federation.folder, "openings.jsonl")
    tell(f"{dict(federation.kills)}; {len(rounds)} rounds of {len(opened)} opened; {uploads} uploads")
    tell(str(causes(federation.folder)))
    reached(f"{KILLS} kills, {len(rounds)} rounds: none twice, none uncounted")
