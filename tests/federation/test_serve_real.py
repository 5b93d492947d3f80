"""A served federation of real processes: schedule, evaluation, a killed command, a clean stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from real import few_nodes

from commands import environment, solera
from solera.federation.server.serve import Serving
from solera.federation.server.versions import Versions

pytestmark = [
    pytest.mark.skipif("SOLERA_DATA" not in os.environ, reason="needs the data sets"),
    pytest.mark.xdist_group("real"),
    pytest.mark.slow,
]

SETTINGS = """
bundle = "start.bundle"
[schedule]
every = "10s"
smallest_cohort = 3
[gate]
evaluate = true
least_users = 5
largest_drop = 0.99
"""


def wait_until(what, seconds: float = 240) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.5)


def test_a_served_federation(tmp_path, key, monkeypatch):
    (tmp_path / "serve.toml").write_text(SETTINGS)
    with few_nodes(tmp_path, key, monkeypatch, masked=False) as real:
        command = [sys.executable, "-m", "solera", "federation", "serve", str(real.folder), "--json"]
        command += ["--settings", str(tmp_path / "serve.toml")]
        began = time.monotonic()
        log = tmp_path / "serve.log"

        def begin() -> subprocess.Popen[bytes]:
            with log.open("a") as file:
                return subprocess.Popen(command, stdout=file, stderr=file, env=environment())

        process = begin()
        try:
            wait_until(lambda: len(real.history) >= 2)
            assert process.poll() is None
            first = time.monotonic() - began
            process.kill()
            process.wait()
            process, done = begin(), len(real.history)
            wait_until(lambda: len(real.history) >= done + 2)
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)
        finally:
            print(log.read_text())
            process.kill()
        assert process.returncode == 0
        rounds = [line["round"] for line in real.history]
        assert rounds == list(range(1, len(rounds) + 1))  # none twice, none left out
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        assert lines[-1] == {"event": "stopped"}
        assert sum("round_id" in line for line in lines) > 2
        versions = Versions(real.folder)
        assert versions.standing.published is not None
        tally = versions.get(versions.standing.published).tally
        assert tally is not None
        assert tally.users == 15
        serving = Serving.read(real.folder)
        assert serving is not None
        assert serving.state == "stopped"
        assert set(serving.told.values()) <= {version.number for version in versions.all()}
        starts = [line["time"] for line in real.events if line["event"] == "started"]
        ends = [line["time"] for line in real.history]
        between = [end - max(start for start in starts if start < end) for end in ends]
        print(f"first two rounds {first:.0f} s after the command; due to done {sorted(between)}")
        _ids_agree(real)
        found = json.loads(solera("federation", "status", real.folder, "--json").stdout)
        assert found["server"]["online"] == 3
        assert found["rounds"]["done"] == len(rounds)
        assert "the federation is not being served" in found["problems"]


def _ids_agree(real) -> None:
    """Each round's id is in the journals of the server and in the log of every node that took part."""
    ids = {line["round_id"] for line in real.history}
    assert len(ids) == len(real.history)
    for device in real.devices:
        lines = [
            json.loads(line) for line in Path(device / "network" / "worker.log").read_text().splitlines()
        ]
        answered = {line.get("round_id") for line in lines if line["message"] == "answered"}
        assert ids <= answered
