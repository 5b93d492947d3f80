"""Many real nodes and a real server on this machine, also under chaos; is the model the simulator's?

    python tools/fleet.py --nodes 50                                       SQLite, one worker with TLS
    python tools/fleet.py --nodes 50 --masked --rounds 1                   a closed form is masked once
    python tools/fleet.py --nodes 1000 --postgres                          PostgreSQL, nginx, two workers
    python tools/fleet.py --nodes 2000 --rounds 2 --postgres --chaos       the same, with everything that goes
    wrong

Every node has a device folder, a key, a signed line over TLS and the code that every node answers with;
hundreds share a process. With --chaos, 10 % never answer, 10 % send garbage, 10 % have a clock that is an
hour off, and workers, coordinator and PostgreSQL are killed, nginx is reloaded and workers are replaced, in
turn. At the end, the model must be the one of the devices whose uploads were taken, each counted once. Prints
one JSON document.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "federation"))
import itertools

from engines import nginx, postgres

from solera.core.closed_form import WEIGHTS, ClosedForm
from solera.core.errors import SoleraError
from solera.data.ragged import Ragged
from solera.data.sampling import ClientData
from solera.device import keys as publisher
from solera.device.bundle import Bundle, Item
from solera.device.device import Device
from solera.device.ledger import Ledger
from solera.device.policy import Policy
from solera.device.publish import start
from solera.engine import OneRound
from solera.federation.common.address import Address
from solera.federation.common.authority import make_keys, make_node_key
from solera.federation.common.connection import FAILURES, Connection
from solera.federation.common.packets import to_bytes
from solera.federation.common.protocol import Packet
from solera.federation.common.settings import Settings
from solera.federation.node.line import Line, read_key
from solera.federation.node.membership import pin
from solera.federation.node.worker import answer, received
from solera.federation.operate import server
from solera.federation.operate.processes import Process, free_port
from solera.federation.secure.roster import make_roster
from solera.federation.server.coordinator import Coordinator
from solera.federation.server.folder import FederationFolder
from solera.federation.web.signing import device_number
from solera.privacy.identity import public_identity

METHOD = "fedease"
OPEN = Policy(least_nodes=2, least_users=1, rounds_per_day=100_000, sums_without_noise=100_000)
BEHAVIOURS = ("silent", "garbage", "ahead", "behind")


def history(number: int, items: int) -> list[int]:
    """What the one user of a device has, in order."""
    return random.Random(number).sample(range(items), 12)


def behaviour(number: int, *, chaos: bool) -> str:
    """What goes wrong with a device: 10 % silent, 10 % garbage, 5 % ahead of time, 5 % behind."""
    share = number % 20
    if not chaos or share >= 6:
        return ""
    return BEHAVIOURS[share // 2 if share < 4 else share - 2]


def create(root: Path, first: int, last: int, items: int, *, masked: bool) -> None:
    """Make devices."""
    bundle = Bundle.open(root / "start.bundle")
    for number in range(first, last):
        device = Device.create(root / f"home-{number}", bundle)
        device.add_all([(str(item), at) for at, item in enumerate(history(number, items))], "me", "made up")
        Ledger(device.store).join_next()
        OPEN.write(device.store)
        device.close()
        if masked:
            pin(root / f"home-{number}", root / "keys/nodes" / f"node-{number}", root / "keys/ca.pem", None)


class Node:
    """One node of many in a process."""

    working = threading.Semaphore(1)  # numpy and torch answer one at a time

    def __init__(self, root: Path, number: int, address: Address, wrong: str) -> None:
        self._home, self._wrong = root / f"home-{number}", wrong
        self.line = Line(
            address,
            read_key(root / "keys/nodes" / f"node-{number}"),
            connection=Connection(address, timeout=120),
        )
        self.line._ahead = {"ahead": 3600.0, "behind": -3600.0}.get(wrong, 0.0)  # as with such a clock

    def run(self) -> None:
        """Take part until the process ends."""
        self.line.stop.wait(random.uniform(0, 5))
        while not self.line.stop.is_set():
            try:
                task = self.line.receive()
                if task is None:
                    continue
                if self._wrong == "silent" and task.kind in {"train", "mask"}:
                    continue
                if self._wrong == "garbage" and task.kind in {"train", "mask"}:
                    noise = {"kernel": np.frombuffer(os.urandom(400), np.uint8)}
                    reply = to_bytes(Packet({"protocol": 4, "noise": os.urandom(20).hex()}, noise))
                else:
                    with self.working:
                        packet = received(task.body, task.shared)
                        reply = to_bytes(answer(task.kind, packet, self._home))
                self.line.send(task, reply)
            except (SoleraError, *FAILURES) as error:
                sys.stderr.write(f"{self._home.name}: {error!r}\n")
                self.line.stop.wait(1.0)


def nodes(root: Path, address: Address, first: int, last: int, *, chaos: bool) -> None:
    """One process of nodes, until it is ended."""
    torch.set_num_threads(1)
    for number in range(first, last):
        node = Node(root, number, address, behaviour(number, chaos=chaos))
        threading.Thread(target=node.run, daemon=True).start()
    signal.pause()


class Chaos(threading.Thread):
    """What an unlucky operator sees, one after the other."""

    def __init__(self, given: argparse.Namespace, parts: dict[str, Any]) -> None:
        super().__init__(daemon=True)
        self._parts, self.over = parts, threading.Event()
        self.done: list[str] = []
        self._seconds = given.every

    def run(self) -> None:
        """Do something every few seconds until it is over."""
        steps = [self.worker, self.coordinator, self.reload, self.database, self.replace]
        while not self.over.wait(self._seconds):
            step = steps[len(self.done) % len(steps)]
            with suppress(ProcessLookupError, psutil.NoSuchProcess):
                step()
                self.done.append(step.__name__)

    def worker(self) -> None:
        """Kill a worker."""
        os.kill(self._parts["server"].pids[0], signal.SIGKILL)

    def coordinator(self) -> None:
        """Kill the coordinator; it is started again."""
        os.kill(self._parts["run"].pid, signal.SIGKILL)

    def reload(self) -> None:
        """Let nginx read its configuration again."""
        self._parts["nginx"].send_signal(signal.SIGHUP)

    def database(self) -> None:
        """Kill PostgreSQL with all its processes, and start it again."""
        self._parts["postgres"].kill()
        self._parts["postgres"].start()

    def replace(self) -> None:
        """Replace all workers one by one."""
        self._parts["server"].replace()


def difference(root: Path, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """The model of the last round against the simulator's of the devices that were taken in it."""
    federation = FederationFolder.open(folder)
    last = federation.lines("history.jsonl")[-1]
    by_number = {}
    for number in range(given.nodes):
        key = read_key(root / "keys/nodes" / f"node-{number}")
        by_number[str(device_number(public_identity(key)))] = number
    if given.masked:
        taken = list(range(given.nodes))
    else:
        wanted = f"-{last['round']}.{last['attempt']}"
        events = federation.lines("events.jsonl")
        begun = max(
            (
                n
                for n, e in enumerate(events)
                if e["event"] in {"started", "void"} and e.get("time", 0) <= last["time"]
            ),
            default=0,
        )
        who = [e["node"] for e in events[begun:] if e["event"] == "taken" and e["round_id"].endswith(wanted)]
        assert len(who) == len(set(who)), "a device was counted twice"
        taken = [by_number[each] for each in who]
    assert len(taken) == last["nodes"] == last["clients"]
    coordinator = Coordinator(federation)
    assert isinstance(coordinator.method, ClosedForm)
    known = Ragged.from_lists([history(number, given.items) for number in taken])
    alone = OneRound(
        coordinator.method,
        ClientData(known, known.sorted_unique(), given.items),
        device=torch.device("cpu"),
        dtype=torch.float64,
    )
    alone.run_round(0)
    here, there = coordinator.state.shared[WEIGHTS], alone.state.shared[WEIGHTS]
    wrong = [number for number in taken if behaviour(number, chaos=given.chaos) in {"silent", "garbage"}]
    return {
        "devices_counted": len(taken),
        "of_them_silent_or_garbage": len(wrong),
        "largest_difference": float((here - there).abs().max()),
        "largest_weight": float(there.abs().max()),
    }


def main() -> None:  # noqa: PLR0912, PLR0915 - one step after the other
    """Run everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--items", type=int, default=200)
    parser.add_argument("--masked", action="store_true")
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--chaos", action="store_true")
    parser.add_argument("--every", type=float, default=15.0, help="seconds between two things that go wrong")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--part", type=int, nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part:
        address = Address("127.0.0.1", given.port, given.root / "keys/ca.pem")
        nodes(given.root, address, *given.part, chaos=given.chaos)
        return
    began = time.monotonic()

    def tell(text: str) -> None:
        sys.stderr.write(f"{time.monotonic() - began:6.0f} s  {text}\n")
        sys.stderr.flush()

    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="solera-fleet-")))
        tell(f"{given.nodes} keys and devices")
        make_keys(root / "keys", 0)
        (root / "keys/nodes").mkdir(exist_ok=True)

        for number in range(given.nodes):
            make_node_key(root / "keys/nodes" / f"node-{number}", f"node-{number}")
        if given.masked:
            roster = make_roster(root / "keys")
            (root / "keys/roster.json").write_text(roster.model_dump_json())
        secret, _ = publisher.make_keys(root / "publisher")
        items = [Item(id=str(item), title=f"item {item}", year=None) for item in range(given.items)]
        bundle = start(METHOD, items, root / "start.bundle", secret, precision="double")
        bounds = [given.nodes * each // given.processes for each in range(given.processes + 1)]
        parts = list(itertools.pairwise(bounds))
        with ProcessPoolExecutor(given.processes) as pool:
            made = [pool.submit(create, root, *part, given.items, masked=given.masked) for part in parts]
            for future in made:
                future.result()
        port, folder = free_port(), root / "films"
        address, keys = Address("127.0.0.1", port, root / "keys/ca.pem"), root / "keys"
        at_work: dict[str, Any] = {}
        options: dict[str, Any] = {}
        if given.postgres:
            at_work["postgres"] = stack.enter_context(postgres())
            path = root / "server.sock"
            at_work["nginx"] = stack.enter_context(nginx(root / "nginx", port, keys, folder, path))
            options = {"database": at_work["postgres"].url, "workers": 2, "path": path}
        began_server = time.monotonic()
        at_work["server"] = stack.enter_context(server.running(folder, address, keys, **options))
        started = time.monotonic() - began_server
        tell(f"the server listens after {started:.1f} s")
        over = threading.Event()
        stack.callback(over.set)

        def look() -> None:
            while not over.wait(0.2):
                with suppress(SoleraError):
                    at_work["server"].look()

        threading.Thread(target=look, daemon=True).start()
        command = [sys.executable, __file__, "--root", str(root), "--port", str(port), "--part"]
        chaos = ["--chaos"] if given.chaos else []
        fleet = [
            Process([*command, *map(str, part), *chaos], {**os.environ}, root / f"nodes-{part[0]}.log")
            for part in parts
        ]
        for each in fleet:
            stack.callback(each.stop)
        settings = Settings(
            rounds=given.rounds,
            repeats=True,
            min_nodes=int(0.95 * given.nodes),
            patience=900,
            deadline=600,
            straggler_wait=40,
            min_replies=0.5,
            attempts=20,
            secure_aggregation=given.masked,
            least_nodes=2,
            least_users=1,
            sums_without_noise=100_000,
        )
        federation = FederationFolder.create(folder, bundle, settings)
        if given.masked:
            federation.keep_roster(roster)
        while at_work["server"].store.nodes().online < settings.min_nodes:
            time.sleep(0.5)
        tell("all nodes are there")
        resume = [sys.executable, "-m", "solera", "federation", "run", str(folder), "--resume"]
        coordinators = 0
        spent = [psutil.Process(each.pid).cpu_times() for each in fleet]
        disturbed = Chaos(given, at_work)
        while True:
            at_work["run"] = Process(resume, {**os.environ, "NO_COLOR": "1"}, root / "run.log")
            coordinators += 1
            if given.chaos and not disturbed.is_alive():
                disturbed.start()
            while at_work["run"].is_running:
                time.sleep(0.1)
            kinds = [each["event"] for each in federation.lines("events.jsonl")]
            if "finished" in kinds:
                break
            if not given.chaos or coordinators > 200:
                raise SystemExit(at_work["run"].said())
        disturbed.over.set()
        rounds = federation.lines("history.jsonl")
        times = [psutil.Process(each.pid).cpu_times() for each in fleet]
        cpu = sum(now.user + now.system for now in times) - sum(was.user + was.system for was in spent)
        memory = [psutil.Process(pid).memory_info().rss for pid in at_work["server"].pids]
        report = {
            "nodes": given.nodes,
            "engine": "PostgreSQL, nginx, 2 workers" if given.postgres else "SQLite, 1 worker",
            "masked": given.masked,
            "load": os.getloadavg()[0],
            "server_start_seconds": round(started, 2),
            "round_seconds": [each["seconds"] for each in rounds],
            "stages": {kind: each["seconds"] for kind, each in rounds[-1]["stages"].items()},
            "rejected": rounds[-1]["rejected"],
            "fleet_cpu_seconds": round(cpu, 1),
            "server_mib": round(sum(memory) / 2**20),
            "coordinators": coordinators,
            "chaos": {name: disturbed.done.count(name) for name in dict.fromkeys(disturbed.done)},
        } | difference(root, folder, given)
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    if report["largest_difference"] > 1e-8 or report["of_them_silent_or_garbage"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
