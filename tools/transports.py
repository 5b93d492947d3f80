"""Both transports on this machine, one after the other, with the same devices and real programs.

    python tools/transports.py --nodes 10

Web: `solera server start` and a process of `solera node start` for each device. Flower: a stock
`flower-superlink` and a stock `flower-supernode` for each device. The rounds are those of a closed form with
200 items, so that the transport and the programs cost most. Prints one JSON document.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psutil
from fleet import METHOD, create

from solera.device import keys as publisher
from solera.device.bundle import Bundle, Item
from solera.device.publish import start
from solera.federation.common.address import Address
from solera.federation.common.authority import make_keys, make_node_key
from solera.federation.common.settings import Settings
from solera.federation.operate import node_process, server
from solera.federation.operate.processes import Process, free_port
from solera.federation.server.folder import FederationFolder

ROOT = Path(__file__).parents[1]
ITEMS = 200
TOGETHER = 4  # nodes that are started at a time: two cores start no more


class Watched:
    """CPU and memory of processes with all their descendants."""

    def __init__(self, roots: list[int]) -> None:
        self._roots = [psutil.Process(root) for root in roots]
        self._over, self.peak = threading.Event(), 0.0
        self._before = self._cpu()
        threading.Thread(target=self._look, daemon=True).start()

    def _all(self) -> list[psutil.Process]:
        found = list(self._roots)
        for root in self._roots:
            with suppress(psutil.NoSuchProcess):
                found += root.children(recursive=True)
        return found

    def _cpu(self) -> float:
        total = 0.0
        for process in self._all():
            with suppress(psutil.NoSuchProcess):
                t = process.cpu_times()
                total += t.user + t.system + t.children_user + t.children_system  # also of those that ended
        return total

    def mib(self) -> float:
        """Resident memory now."""
        total = 0
        for process in self._all():
            with suppress(psutil.NoSuchProcess):
                total += process.memory_info().rss
        return total / 2**20

    def _look(self) -> None:
        while not self._over.wait(1.0):
            self.peak = max(self.peak, self.mib())

    def seconds(self) -> float:
        """CPU since the beginning; the peak ends here."""
        self._over.set()
        return self._cpu() - self._before


def until(holds: Any, process: Process, seconds: float = 900.0) -> None:
    """Wait, but not for a program that has ended."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end or not process.is_running:
            raise SystemExit(process.said())
        time.sleep(0.2)


def is_over(folder: Path) -> bool:
    """Whether all rounds were run."""
    return "finished" in {each["event"] for each in FederationFolder(folder).lines("events.jsonl")}


def report(folder: Path, serving: Watched, nodes: Watched, idle: list[float], count: int) -> dict[str, Any]:
    """What the rounds took. The first one also tells the nodes everything that they will need again."""
    rounds = FederationFolder(folder).lines("history.jsonl")
    times = [each["seconds"] for each in rounds]
    assert all(each["nodes"] == count for each in rounds), rounds
    return {
        "first_round_seconds": round(times[0], 2),
        "round_seconds": round(statistics.median(times[1:]), 2),
        "cpu_seconds_a_round": {
            "server": round(serving.seconds() / len(times), 2),
            "a_node": round(nodes.seconds() / len(times) / count, 3),
        },
        "idle_mib": {"server": round(idle[0]), "a_node": round(idle[1] / count)},
        "peak_mib": {"server": round(serving.peak), "nodes": round(nodes.peak)},
    }


def by_web(root: Path, bundle: Bundle, given: argparse.Namespace) -> dict[str, Any]:
    """A server with SQLite and one worker."""
    address, keys = Address("127.0.0.1", free_port(), root / "keys/ca.pem"), root / "keys"
    folder = root / "films"
    settings = Settings(
        rounds=given.rounds, repeats=True, min_nodes=given.nodes, patience=900, deadline=600,
        straggler_wait=600, least_nodes=2, least_users=1, sums_without_noise=100_000,
    )  # fmt: skip
    with ExitStack() as stack:
        serving = stack.enter_context(server.running(folder, address, keys))
        nodes: list[int] = []
        for number in range(given.nodes):
            running = node_process.running(
                root / f"home-{number}", address, keys / "nodes" / f"node-{number}"
            )
            nodes.append(stack.enter_context(running).process.pid)
        FederationFolder.create(folder, bundle, settings)
        while serving.store.nodes().online < given.nodes:
            time.sleep(0.2)
        time.sleep(5)
        here, there = Watched(serving.pids), Watched(nodes)
        idle = [here.mib(), there.mib()]
        command = [sys.executable, "-m", "solera", "federation", "run", str(folder), "--resume"]
        run = Process(command, {**os.environ, "NO_COLOR": "1"}, root / "run.log")
        here._roots.append(psutil.Process(run.pid))
        until(lambda: is_over(folder), run)
        return report(folder, here, there, idle, given.nodes)


def by_flower(root: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Stock programs of Flower's."""
    home, port, folder = root / "flwr", free_port(), root / "flower-films"
    home.mkdir()
    where = f'address = "127.0.0.1:{port}"\ninsecure = true\n'
    (home / "config.toml").write_text(f'[superlink]\ndefault = "here"\n[superlink.here]\n{where}')
    variables = os.environ | {"FLWR_HOME": str(home), "FLWR_TELEMETRY_ENABLED": "0"}
    quiet = "--disable-runtime-dependency-installation"

    def answers() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    with ExitStack() as stack:

        def begin(name: str, *command: str) -> Process:
            process = Process(list(command), variables, root / f"{name}.log")
            stack.callback(process.stop)
            return process

        link = begin("link", "flower-superlink", "--insecure", quiet, "--port", str(port))
        until(answers, link)
        nodes = []
        for number in range(given.nodes):
            config = f'device="{root / f"home-{number}"}"'
            way = ["--superlink", f"127.0.0.1:{port}", "--port", str(free_port()), "--node-config", config]
            nodes.append(begin(f"node-{number}", "flower-supernode", "--insecure", *way).pid)
            if number % TOGETHER == TOGETHER - 1:
                time.sleep(4)
        time.sleep(20)
        here, there = Watched([link.pid]), Watched(nodes)
        idle = [here.mib(), there.mib()]
        settings = {
            "folder": str(folder), "bundle": str(root / "start.bundle"), "rounds": given.rounds,
            "min-nodes": given.nodes, "deadline": 600, "straggler-wait": 600, "least-nodes": 2,
            "least-users": 1, "sums-without-noise": 100_000, "repeats": True,
        }  # fmt: skip
        text = " ".join(f"{name}={json.dumps(value)}" for name, value in settings.items())
        command = ["flwr", "run", str(ROOT / "packaging/flower"), "here", "--run-config", text]
        asked = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
        if asked.returncode:
            raise SystemExit(asked.stdout + asked.stderr)
        found = FederationFolder(folder)
        until(
            lambda: folder.exists() and "finished" in {e["event"] for e in found.lines("events.jsonl")}, link
        )
        return report(folder, here, there, idle, given.nodes)


def main() -> None:
    """Run both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--only", choices=("web", "flower"))
    given = parser.parse_args()
    found: dict[str, Any] = {"nodes": given.nodes, "load": os.getloadavg()[0]}
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="solera-transports-")))
        make_keys(root / "keys", 0)
        (root / "keys/nodes").mkdir(exist_ok=True)
        for number in range(given.nodes):
            make_node_key(root / "keys/nodes" / f"node-{number}", f"node-{number}")
        secret, _ = publisher.make_keys(root / "publisher")
        items = [Item(id=str(item), title=f"item {item}", year=None) for item in range(ITEMS)]
        bundle = start(METHOD, items, root / "start.bundle", secret, precision="double")
        for name in ("web", "flower"):
            if given.only in (None, name):
                for home in root.glob("home-*"):
                    shutil.rmtree(home)  # a device's number belongs to one transport
                create(root, 0, given.nodes, ITEMS, masked=False)
                sys.stderr.write(f"· {name}\n")
                found[name] = by_web(root, bundle, given) if name == "web" else by_flower(root, given)
    sys.stdout.write(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
