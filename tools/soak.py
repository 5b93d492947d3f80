"""A served federation under chaos: kills, pauses, partitions, resets and a full disk, one after the other.

    python tools/soak.py --minutes 60
    python tools/soak.py --minutes 60 --masked --seed 7

It starts a server, `solera federation serve` with a round every few seconds, and nodes behind lines that can
be cut. Then it disturbs one of them at a time and waits until rounds go on as before. At the end it prints
the rounds, how long each recovery took and the server's memory, and checks the journals: no round is counted
twice, and no upload or ε is missing from an account. The exit status is 1 if a check fails. The full disk
needs the right to mount a tmpfs of 128 MiB; without it, that incident is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

HERE = Path(__file__).resolve().parents[1]
sys.path += [str(HERE / "tests" / "deploy")]

from bad_network import Line, bad_line  # noqa: E402

from solera.deploy.common import flower  # noqa: E402
from solera.deploy.common.flower import WORKER_APP, Address  # noqa: E402
from solera.deploy.common.private_files import private_folder  # noqa: E402
from solera.deploy.operate import superlink  # noqa: E402
from solera.deploy.operate.figures import Figures  # noqa: E402
from solera.deploy.operate.fleet import FleetSettings, prepare  # noqa: E402
from solera.deploy.operate.processes import Process, family, free_port  # noqa: E402
from solera.deploy.operate.supernode import Running  # noqa: E402
from solera.device.device import Device  # noqa: E402
from solera.device.ledger import Ledger  # noqa: E402

USERS = 3  # on every node
SLOWEST = 420.0  # seconds within which everything has to recover
DISK = 128  # MiB
PLAIN = 'dp = "noise=1,delta=1e-5,clip=0.1"'
MASKED = """dp = "noise=1,delta=1e-5,clip=0.1,mode=distributed"
secure_aggregation = true
least_nodes = 3
least_users = 3"""
SETTINGS = """
bundle = "{bundle}"
[schedule]
every = "{every}s"
smallest_cohort = 3
wait = "1h"
[federation]
rounds = 20000
deadline = 60
straggler_wait = 5
{privacy}
"""


@dataclass
class Node:
    """A node behind a line of its own; started again whenever it has ended."""

    device: Path
    key: Path
    address: Address
    line: Line
    process: Process | None = None
    names: set[str] = field(default_factory=set)

    def keep(self) -> None:
        """Start it if it does not run."""
        if self.process is not None and self.process.is_running:
            self.names |= {Running(self.process, self.device).node_id} - {""}
            return
        home = private_folder(flower.home_of(self.device))
        way = replace(self.address, port=self.line.port)
        command = flower.node(self.device, way, self.key, WORKER_APP)
        self.process = Process(command, flower.environment(home), home / "node.log")

    @property
    def pids(self) -> list[int]:
        """The process that talks and the one that answers."""
        assert self.process is not None
        return [self.process.pid, *(each.pid for each in family(self.process.pid))]


class Soak:
    """The federation, and what can happen to it."""

    def __init__(self, root: Path, given: argparse.Namespace, stack: ExitStack) -> None:
        self._root, self._draw = root, random.Random(given.seed)
        self.folder = root / "server"
        self.has_disk = _mounted(self.folder, stack)
        fleet = FleetSettings(nodes=given.nodes, users=USERS, masked=given.masked, seed=given.seed)
        prepare(root, fleet)
        privacy = MASKED if given.masked else PLAIN
        text = SETTINGS.format(bundle=root / "start.bundle", every=given.every, privacy=privacy)
        (root / "serve.toml").write_text(text)
        self._address = Address("127.0.0.1", free_port(), root / "keys" / "ca.pem")
        self._server = self._start_server()
        self.nodes = []
        for number in range(1, given.nodes + 1):
            line, key = bad_line(self._address.port), root / "keys" / "nodes" / f"node-{number}"
            self.nodes.append(Node(root / f"home-{number}", key, self._address, stack.enter_context(line)))
            self.nodes[-1].keep()
        self._serve = self._start_serve()
        stack.callback(self.end)
        self._figures = Figures(self.folder)
        self.epsilons: list[float] = []
        self.faults: list[str] = []  # what had to be started again and was not killed

    def _start_server(self) -> ExitStack:
        running = ExitStack()
        self._process, _ = running.enter_context(
            superlink.running(self.folder, self._address, self._root / "keys")
        )
        return running

    def _start_serve(self) -> Process:
        command = [sys.executable, "-m", "solera", "federation", "serve", str(self.folder), "--json"]
        command += ["--settings", str(self._root / "serve.toml")]
        return Process(command, dict(os.environ), self._root / "serve.log")

    def end(self) -> None:
        """End everything that was started."""
        self._serve.stop(patience=60)
        for node in self.nodes:
            if node.process is not None:
                node.process.stop()
        self._server.close()

    def look(self) -> None:
        """Keep nodes running, as a service manager does, and note the ε spent."""
        for node in self.nodes:
            node.keep()
        if not self._serve.is_running:
            self.faults.append(f"serve has ended by itself: {self._serve.said()[-300:]}")
            self._serve = self._start_serve()
        if not self._process.is_running:
            self.faults.append(f"the server has ended by itself: {self._process.said()[-300:]}")
            self._kill_server()
        if self._figures.folder.exists and (found := self._figures.epsilon()):
            self.epsilons.append(found[0])

    def lines(self, name: str) -> list[dict[str, Any]]:
        """A journal's whole lines; one that is being written waits."""
        path = self.folder / name
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def recovery(self) -> float | None:
        """Seconds until two more rounds are done, the last with all nodes; None if that takes too long."""
        began, done = time.monotonic(), len(self.lines("history.jsonl"))
        while time.monotonic() < began + SLOWEST:
            history = self.lines("history.jsonl")
            if len(history) >= done + 2 and history[-1]["nodes"] == len(self.nodes):
                return time.monotonic() - began
            self.look()
            time.sleep(0.5)
        return None

    def incidents(self) -> dict[str, Callable[[], None]]:
        """What can happen, by name."""
        found = {
            "kill a node": lambda: self._signal(self._node_pids(), signal.SIGKILL),
            "kill what answers for a node": lambda: self._signal(self._node_pids()[1:], signal.SIGKILL),
            "pause a node": lambda: self._pause(self._node_pids()),
            "kill the app": lambda: self._signal(self._app_pids(), signal.SIGKILL),
            "pause the app": lambda: self._pause(self._app_pids()),
            "pause the server": lambda: self._pause([self._process.pid]),
            "kill the server": self._kill_server,
            "kill serve": self._kill_serve,
            "cut a line": lambda: self._cut([self._draw.choice(self.nodes)]),
            "cut all lines": lambda: self._cut(self.nodes),
            "reset a line": self._draw.choice(self.nodes).line.reset,
        }
        return found | ({"fill the disk": self._fill} if self.has_disk else {})

    def _node_pids(self) -> list[int]:
        return self._draw.choice(self.nodes).pids

    def _app_pids(self) -> list[int]:
        return [each.pid for each in family(self._process.pid) if "flwr-serverapp" in _command(each)]

    def _signal(self, pids: list[int], how: int) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, how)

    def _pause(self, pids: list[int]) -> None:
        self._signal(pids, signal.SIGSTOP)
        try:
            time.sleep(self._draw.uniform(3, 20))
        finally:
            self._signal(pids, signal.SIGCONT)

    def _kill_server(self) -> None:
        self._signal([self._process.pid], signal.SIGKILL)
        self._server.close()
        self._server = self._start_server()

    def _kill_serve(self) -> None:
        self._signal([self._serve.pid], signal.SIGKILL)
        self._serve.stop()
        self._serve = self._start_serve()

    def _cut(self, nodes: list[Node]) -> None:
        for node in nodes:
            node.line.is_cut = True
        try:
            time.sleep(self._draw.uniform(3, 20))
        finally:
            for node in nodes:
                node.line.is_cut = False

    def _fill(self) -> None:
        ballast = self.folder / "ballast"
        with suppress(OSError), ballast.open("wb") as file:
            while True:
                file.write(bytes(1 << 16))
                file.flush()
        try:
            time.sleep(self._draw.uniform(3, 20))
        finally:
            ballast.unlink()

    def memory(self) -> dict[str, int]:
        """MiB of the server's processes, by their part."""
        found: Counter[str] = Counter()
        for each in [psutil.Process(self._process.pid), *family(self._process.pid)]:
            with suppress(psutil.NoSuchProcess):
                parts = {"flwr-serverapp": "app", "executor": "executor"}
                part = next((name for word, name in parts.items() if word in _command(each)), "server")
                found[part] += each.memory_info().rss >> 20
        found["serve"] = psutil.Process(self._serve.pid).memory_info().rss >> 20
        return dict(found)

    def problems(self) -> list[str]:
        """What the journals of the server and of the devices say that must not be; after the end."""
        folder = self._figures.folder
        history, events = self.lines("history.jsonl"), self.lines("events.jsonl")
        found = list(self.faults)
        rounds = [line["round"] for line in history]
        if rounds != list(range(1, len(rounds) + 1)):
            found.append(f"rounds are counted twice or left out: {rounds}")
        if folder.progress.rounds_done != len(rounds):
            found.append(f"{folder.progress.rounds_done} rounds are done, {len(rounds)} are in the history")
        if any(line["nodes"] > len(self.nodes) for line in history):
            found.append("a round has more nodes than there are")
        if any(later < earlier for earlier, later in zip(self.epsilons, self.epsilons[1:], strict=False)):
            found.append("the ε spent has become less")
        taken = Counter(line["node"] for line in events if line["event"] == "taken")
        for node in self.nodes:
            device = Device.open(node.device)
            sent = Ledger(device.store).uploads(folder.identity.federation)
            device.close()
            seen = sum(taken[name] for name in node.names)
            if sent < seen:
                found.append(f"{node.device.name} accounts for {sent} uploads, the server has taken {seen}")
        return found


def _command(process: psutil.Process) -> str:
    with suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())
    return ""


def _mounted(folder: Path, stack: ExitStack) -> bool:
    """Whether the server's folder has become a small disk of its own."""
    folder.mkdir(mode=0o700)
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}m,mode=700", "tmpfs", str(folder)]
    with suppress(OSError):
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            stack.callback(subprocess.run, ["umount", "-l", str(folder)], check=False)
            return True
    return False


def _tell(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def soak(given: argparse.Namespace) -> int:
    """Disturb until the time is over, and report."""
    draw, log = random.Random(given.seed), list[tuple[str, float | None]]()
    root = Path(given.folder or tempfile.mkdtemp(prefix="solera-soak-")).resolve()
    root.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        _tell(f"everything is in {root}; the server's folder is gone afterwards if it is a disk of its own")
        made = Soak(root, given, stack)
        first = made.recovery()
        if first is None:
            raise SystemExit(f"no two rounds within {SLOWEST:g} s: see {root}/serve.log")
        begin = made.memory()
        _tell(f"the first two rounds after {first:.0f} s; memory in MiB {begin}")
        todo, until = list[str](), time.monotonic() + 60 * given.minutes
        while time.monotonic() < until:
            what = made.incidents()
            todo = todo or draw.sample(sorted(what), len(what))  # each once, before any comes again
            name = todo.pop()
            what[name]()
            seconds = made.recovery()
            log.append((name, seconds))
            after = "NO RECOVERY" if seconds is None else f"{seconds:.0f} s"
            _tell(f"{time.strftime('%H:%M:%S')} {name}: {after}")
            time.sleep(draw.uniform(0, 5))
        end, rounds = made.memory(), len(made.lines("history.jsonl"))
        made.end()
        problems = made.problems()
        problems += [f"no recovery after: {name}" for name, seconds in log if seconds is None]
        void = Counter(line["event"] for line in made.lines("events.jsonl"))
        _tell(f"{rounds} rounds, {void['void']} void, {void['failed']} failed runs, {len(log)} incidents")
        for name in sorted({name for name, _ in log}):
            times = [f"{seconds:.0f}" for each, seconds in log if each == name and seconds is not None]
            _tell(f"  {name}: recovered after {', '.join(times)} s")
        _tell(f"memory in MiB at the begin {begin}, at the end {end}")
        _tell(f"ε spent {made.epsilons[-1]:.3g}" if made.epsilons else "no ε was spent")
        _tell("\n".join(f"PROBLEM: {each}" for each in problems) or "no problem was found")
    return 1 if problems else 0


def main() -> int:
    """Read the options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60.0, help="of incidents, after two rounds in peace")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--every", type=int, default=5, help="seconds between rounds")
    parser.add_argument("--masked", action="store_true", help="masked rounds, noise in shares")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="an empty folder to work in")
    return soak(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
