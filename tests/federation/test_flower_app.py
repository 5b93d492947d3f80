"""Flower's own programs, unchanged, around Solera's app: the same model, plain and masked."""

from __future__ import annotations

import ast
import json
import os
import socket
import subprocess
import time
from contextlib import ExitStack
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from real import few_nodes

from solera.federation.common.protocol import Packet, RefusalError
from solera.federation.operate.processes import Process, free_port
from solera.federation.server.coordinator import Coordinator
from solera.federation.server.folder import FederationFolder

flower = pytest.importorskip("solera.federation.flower")
ROOT = Path(__file__).parents[2]
APP = ROOT / "packaging" / "flower"
PUBLIC = {"flwr.app", "flwr.serverapp", "flwr.clientapp"}


def imports(text: str) -> set[str]:
    """Modules of Flower's that a source names."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        found |= {name for name in names if name.split(".")[0] == "flwr"}
    return found


def test_nothing_private_of_flowers_is_imported():
    files = [*ROOT.glob("src/**/*.py"), *ROOT.glob("research/src/**/*.py"), *APP.glob("**/*.py")]
    assert set().union(*(imports(path.read_text()) for path in files)) == PUBLIC
    assert imports("from flwr.supercore.fab import Fab") - PUBLIC  # the control: it is seen


def test_a_packet_is_the_same_again_and_nothing_else_is_taken():
    packet = Packet({"a": [1, "é"]}, {"x": np.arange(6, dtype="<f4").reshape(2, 3)})
    kind, again = flower.from_content(flower.to_content("train", packet))
    assert (kind, again.digest) == ("train", packet.digest)
    content = flower.to_content("train", packet)
    content["more"] = flower.ConfigRecord({"x": 1})
    with pytest.raises(RefusalError, match="not declared"):
        flower.from_content(content)


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def until(holds, seconds: float = 300.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.5)


@pytest.mark.slow
@pytest.mark.skipif("SOLERA_DATA" not in os.environ, reason="needs the data sets")
@pytest.mark.parametrize("masked", [False, True])
def test_stock_programs_train_the_same_model(tmp_path, key, monkeypatch, masked):
    home, port = tmp_path / "flwr", free_port()
    home.mkdir()
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    )
    variables = os.environ | {"FLWR_HOME": str(home), "FLWR_TELEMETRY_ENABLED": "0"}
    with (
        few_nodes(tmp_path, key, monkeypatch, masked=masked, start=False) as real,
        ExitStack() as stack,
    ):
        variables["PYTHONPATH"] = os.environ["PYTHONPATH"]

        def start(name: str, *command: str) -> Process:
            process = Process(list(command), variables, tmp_path / f"{name}.log")
            stack.callback(process.stop)
            return process

        quiet = "--disable-runtime-dependency-installation"
        link = start("superlink", "flower-superlink", "--insecure", quiet, "--port", str(port))
        until(lambda: answers(port))
        assert link.is_running, link.said()
        for number, device in enumerate(real.devices, start=1):
            config = f'device="{device}"'
            if masked:
                config += f' key="{real.keys}/nodes/node-{number}" ca="{real.keys}/ca.pem"'
            start(
                f"supernode-{number}",
                "flower-supernode",
                "--insecure",
                "--superlink",
                f"127.0.0.1:{port}",
                "--port",
                str(free_port()),
                "--node-config",
                config,
            )
        settings = {
            "folder": str(real.folder),
            "bundle": str(tmp_path / "start.bundle"),
            "rounds": 2,
            "min-nodes": 3,
            "deadline": 300,
            "straggler-wait": 300,
            "least-nodes": 2,
            "least-users": 1,
            "sums-without-noise": 100_000,
        }
        if masked:
            settings |= {"secure-aggregation": True, "keys": str(real.keys)}
        text = " ".join(f"{name}={json.dumps(value)}" for name, value in settings.items())
        asked = subprocess.run(
            ["flwr", "run", str(APP), "here", "--run-config", text, "--format", "json"],
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )
        assert asked.returncode == 0, asked.stdout + asked.stderr
        folder = FederationFolder(real.folder)
        until(lambda: "finished" in {each["event"] for each in folder.lines("events.jsonl")}, 900)
        known = Coordinator(folder).progress.ledger.nodes
        differences = []
        for order in permutations(known):  # which SuperNode had which device, Flower does not say
            real.nodes = {place: SimpleNamespace(node_id=node) for place, node in enumerate(order, start=1)}
            differences.append(real.difference_from_simulation(2))
        assert min(differences) < 1e-8
        assert max(differences) > 1e-3  # the control: another assignment is another model
