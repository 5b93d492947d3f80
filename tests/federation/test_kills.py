"""kill -9 of a node in the middle of its own writes: no corrupt database, nothing lost that was said done."""

from __future__ import annotations

import os
import pickle
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from solera.device.device import Device
from solera.device.policy import Policy

SMALL = {"embedding_size": 4}


@pytest.mark.parametrize("kills", [1, pytest.param(100, marks=pytest.mark.slow)])
def test_a_node_killed_while_it_writes(local, tmp_path, kills):
    federation = local("fedem", SMALL)
    federation.round()
    order = federation.coordinator.begin(0, set(federation.devices))[100]
    # The server takes every other update: the orders say so in turn.
    accepted = [{**order.fields, "accepted": "", "round": 1}, {**order.fields, "accepted": "1.0", "round": 2}]
    orders = tmp_path / "orders"
    orders.write_bytes(pickle.dumps([replace(order, fields=fields) for fields in accepted]))
    device = federation.devices.pop(100)
    Policy(rounds_per_day=1_000_000).write(device.store)
    device.close()
    path, draw, done = device.path, random.Random(5), 0
    leaves = federation.devices[101].kept("u5").keys()
    assert leaves
    for _ in range(kills):
        command = [
            sys.executable,
            str(Path(__file__).parent / "killed_node.py"),
            str(path),
            str(orders),
            str(done),
        ]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        # Two orders or more are begun, on a slow machine too; then it dies at any moment of its work.
        said = [int(process.stdout.readline()) for _ in range(draw.randint(2, 4))]
        time.sleep(draw.random() * 0.3)
        os.kill(process.pid, signal.SIGKILL)
        said += [int(line) for line in process.stdout if line.endswith("\n")]
        process.wait()
        device = Device.open(path)
        assert device.status()["database"] == "ok"
        times = {
            row["time"] for row in device.store.rows("SELECT time FROM interactions WHERE time >= 1000000")
        }
        finished = {1_000_000 + number for number in range(said[-1] + 1)}
        assert finished <= times <= finished | {1_000_000 + said[-1] + 1}  # the last may have been unsaid
        for tensors in (device.personal("u0"), device.kept("u0")):
            assert tensors.keys() in (set(), leaves)  # all of them, or none
        pending = device.store.settings()["pending"]
        assert bool(pending) == bool(
            device.store.rows("SELECT 1 FROM tensors WHERE kind = 'pending' LIMIT 1")
        )
        done = max(times) - 1_000_000 + 1
        device.close()
    assert done >= 2 * kills
