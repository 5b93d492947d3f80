"""A key that is revoked stays revoked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from commands import solera, wait_for
from solera.device.device import Device
from solera.device.publish import start as publish
from solera.federation.operate.processes import Process, free_port


@pytest.mark.slow
def test_a_revoked_node_is_turned_away_also_after_a_restart(
    keys: Path, key: Path, catalogue, start: Callable[..., Process], tmp_path: Path
):
    Device.create(tmp_path / "d", publish("fedmf", catalogue, tmp_path / "x.bundle", key)).close()
    port = free_port()
    server = ("server", "start", tmp_path / "f", "--keys", keys, "--port", port)
    first = start(*server, until="0 of 2 nodes are online")
    lost = keys / "nodes" / "node-2"
    access = ("--server", f"127.0.0.1:{port}", "--ca", keys / "ca.pem", "--key", lost)
    node = start("node", "start", tmp_path / "d", *access, until="takes part")
    assert solera("server", "revoke", tmp_path / "f", f"{lost}.pub").stdout.strip().endswith("revoked")
    wait_for(first, "0 of 1 nodes are online")
    again = solera("server", "revoke", tmp_path / "f", f"{lost}.pub")
    assert again.stdout.strip().endswith("takes no part")
    node.stop()
    first.stop()

    start(*server, until="0 of 1 nodes are online")  # the .pub file is still in the folder
    done = solera("node", "start", tmp_path / "d", *access)
    assert f"the server does not know the key {lost}" in done.stderr
