"""The memory of a node, idle and at work: proportional set size (PSS), summed over the node's processes.

    python tools/node_memory.py --data ml-100k --users 50 --rounds 2
    python tools/node_memory.py --pid 1234            # a node that runs already, once
    python tools/node_memory.py --json

Starts a server and one node on this machine, with as many users of a data set on it, and runs rounds. PSS
counts a page that processes share in parts, so the sum over processes is what they take together; RSS counts
it whole in each of them, and is what a process takes that shares with no other. `idle` is
before the first message, `working` the largest during the rounds, `rested` after the process with torch has
ended. `torch` marks processes that have it loaded.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import threading
import time
from pathlib import Path

import psutil

from solera.data.datasets import load
from solera.deploy.common.authority import make_keys
from solera.deploy.common.flower import WORKER_APP, Address, environment, home_of, node
from solera.deploy.common.settings import Settings
from solera.deploy.operate import submit, superlink
from solera.deploy.operate.households import Households
from solera.deploy.operate.processes import Process, free_port
from solera.deploy.server.folder import FederationFolder
from solera.device.keys import make_keys as publisher_keys
from solera.device.publish import catalogue_of, start


def memory(pid: int) -> list[dict[str, object]]:
    """Every process of a node: its program, PSS in MiB, and whether torch is loaded."""
    parent = psutil.Process(pid)
    found: list[dict[str, object]] = []
    for each in (parent, *parent.children(recursive=True)):
        try:
            pss, rss = _sizes(each.pid)
            loaded = "libtorch" in Path(f"/proc/{each.pid}/maps").read_text(encoding="utf-8")
            found.append(
                {"program": " ".join(each.cmdline()[1:4])[:60], "pss": pss, "rss": rss, "torch": loaded}
            )
        except (psutil.Error, OSError):  # it has ended meanwhile
            continue
    return found


def _sizes(pid: int) -> tuple[float, float]:
    """PSS and RSS in MiB, as the kernel sums them up."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8")
    found = dict(re.findall(r"^(Pss|Rss): +(\d+) kB", text, re.MULTILINE))
    return int(found.get("Pss", 0)) / 1024, int(found.get("Rss", 0)) / 1024


def total(found: list[dict[str, object]]) -> float:
    """PSS of all together, in MiB."""
    return sum(float(str(each["pss"])) for each in found)


def measure(data: str, users: int, rounds: int, method: str, idle: float) -> dict[str, object]:
    """Run a node through its states."""
    with tempfile.TemporaryDirectory(prefix="solera-memory-") as name:
        root = Path(name)
        make_keys(root / "keys", 1)
        secret, _ = publisher_keys(root / "publisher")
        catalogue = load(data)
        bundle = start(method, catalogue_of(catalogue), root / "start.bundle", secret)
        households = Households.choose(catalogue, [root / "home"], users)
        households.create(bundle)
        keys = (root / "keys").resolve()
        address = Address("127.0.0.1", free_port(), keys / "ca.pem")
        command = node(root / "home", address, keys / "nodes" / "node-1", WORKER_APP)
        home = home_of(root / "home")
        process = Process([*command, "--idle", str(idle)], environment(home), home / "node.log")
        peak: list[dict[str, object]] = []
        over = threading.Event()

        def watch() -> None:
            nonlocal peak
            while not over.wait(0.5):
                peak = max(peak, memory(process.pid), key=total)

        try:
            with superlink.running(root / "server", address, keys):
                while not re.search(r"takes part", process.said()):
                    time.sleep(0.2)
                time.sleep(3.0)
                waiting = memory(process.pid)
                watcher = threading.Thread(target=watch, daemon=True)
                watcher.start()
                FederationFolder.create(root / "server", bundle, Settings(rounds=rounds, min_nodes=1))
                submit.run(root / "server", lambda entry: None)
                over.set()
                watcher.join()
                time.sleep(idle + 30.0)
                return {"idle": waiting, "working": peak, "rested": memory(process.pid)}
        finally:
            process.stop()


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", default="ml-100k")
    parser.add_argument("--users", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--method", default="fedmf")
    parser.add_argument("--idle", type=float, default=5.0, help="seconds after which the worker ends")
    parser.add_argument("--pid", type=int, help="a node that runs already")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.pid:
        states: dict[str, object] = {"now": memory(given.pid)}
    else:
        states = measure(given.data, given.users, given.rounds, given.method, given.idle)
    if given.json:
        print(json.dumps(states))
        return
    for state, found in states.items():
        assert isinstance(found, list)
        print(f"{state}: {total(found):.0f} MiB in {len(found)} processes")
        for each in found:
            loaded = "torch" if each["torch"] else ""
            print(f"  {each['pss']:6.0f} (RSS {each['rss']:.0f})  {loaded:5}  {each['program']}")


if __name__ == "__main__":
    main()
