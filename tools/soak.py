"""A served federation under chaos, for as long as you like: nothing may be lost, nothing counted twice.

    python tools/soak.py --minutes 60
    python tools/soak.py --minutes 60 --postgres            a PostgreSQL of its own, two workers
    python tools/soak.py --minutes 60 --postgres postgresql://solera@db/empty

It starts a server, `solera federation serve` with a round every few seconds, and nodes behind lines that can
be cut. Then it disturbs one of them at a time and waits until rounds go on as before. Whatever ends is
started again, as a service manager would. A round counts only with all users, so the model at the end must be
the simulator's after as many rounds, which it is compared with; with one round less it must differ, or the
comparison shows nothing. Prints one JSON document; what goes on is told on standard error. The exit status is
1 if there is a problem. Needs the data sets (SOLERA_DATA). A full disk needs the right to mount a tmpfs;
without it, that incident is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil

HERE = Path(__file__).resolve().parents[1]
sys.path += [str(HERE / "tests"), str(HERE / "tests" / "federation")]

from bad_network import Line, bad_line  # noqa: E402
from engines import postgres  # noqa: E402
from real import RealFederation, people  # noqa: E402

from commands import environment  # noqa: E402
from solera.device.device import Device  # noqa: E402
from solera.device.keys import make_keys as publisher_keys  # noqa: E402
from solera.device.ledger import Ledger  # noqa: E402
from solera.federation.common.address import Address, home_of  # noqa: E402
from solera.federation.common.authority import make_keys  # noqa: E402
from solera.federation.common.private_files import private_folder  # noqa: E402
from solera.federation.operate.processes import Process, family  # noqa: E402
from solera.federation.operate.server import named  # noqa: E402
from solera.federation.server.folder import FederationFolder  # noqa: E402
from solera.federation.web.signing import device_number  # noqa: E402

USERS = 3  # on every node
SLOWEST = 600.0  # seconds within which everything has to recover
EXACT = 1e-8  # difference from the simulator, in double precision
DISK = 128  # MiB
SETTINGS = """
bundle = "{bundle}"
[schedule]
every = "{every}s"
smallest_cohort = {nodes}
wait = "1h"
[federation]
rounds = 1000000
over_selection = 1.0
min_replies = 1.0
deadline = 180
straggler_wait = 150
max_norm = 1e6
"""


class Program:
    """A command that is started again whenever it has ended."""

    def __init__(self, command: list[str], log: Path, variables: dict[str, str] | None = None) -> None:
        self._command, self._log, self._variables = command, log, variables or environment()
        self.by_itself: list[str] = []  # how it has ended without having been asked to
        self.expected = False
        self.process = self._started()

    def _started(self) -> Process:
        return Process(self._command, self._variables, self._log)

    def keep(self, *, may_end: bool = False) -> None:
        """Start it if it does not run."""
        if not self.process.is_running:
            if not self.expected and not may_end:
                self.by_itself.append(self.process.said()[-300:])
            self.expected = False
            self.process.stop()
            self.process = self._started()

    def kill(self) -> None:
        """As a crash would."""
        self.expected = True
        send([self.process.pid], signal.SIGKILL)

    def children(self) -> list[int]:
        """Numbers of what it has started."""
        return [each.pid for each in family(self.process.pid)]

    def memory(self) -> int:
        """MiB of it and its children."""
        found = 0
        for pid in [self.process.pid, *self.children()]:
            with suppress(psutil.NoSuchProcess):
                found += psutil.Process(pid).memory_info().rss
        return found >> 20


@dataclass
class Node:
    """A node behind a line of its own."""

    device: Path
    number: int  # that the server knows it by
    line: Line
    program: Program


def send(pids: Iterable[int], how: int) -> None:
    """Send a signal to what is still there."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, how)


class Soak:
    """The federation, and what can happen to it."""

    def __init__(self, root: Path, given: argparse.Namespace, stack: ExitStack) -> None:
        self._draw, self._given = random.Random(given.seed), given
        self._stack = stack
        self.has_disk = mounted(root / "server", stack)
        keys, secret = root / "keys", publisher_keys(root / "publisher")[0]
        make_keys(keys, given.nodes)
        users = [USERS] * given.nodes
        self.real = stack.enter_context(
            RealFederation(root, keys=keys, key=secret, data=people(), method="fedmf", users=users)
        )
        self.folder, self._address = self.real.folder, self.real.address
        self._database(root, given.postgres)
        text = SETTINGS.format(bundle=root / "start.bundle", every=given.every, nodes=given.nodes)
        (root / "serve.toml").write_text(text)
        solera = [sys.executable, "-m", "solera"]
        command = [*solera, "server", "start", str(self.folder), "--keys", str(keys)]
        command += [
            "--port",
            str(self._address.port),
            "--workers",
            str(self._workers),
            "--check-in-every",
            "5",
        ]
        self.server = self._program(command, root / "server.log")
        self.nodes = [self._node(root, number) for number in range(1, given.nodes + 1)]
        command = [*solera, "federation", "serve", str(self.folder), "--json"]
        self.serve = self._program([*command, "--settings", str(root / "serve.toml")], root / "serve.log")

    def _program(self, command: list[str], log: Path) -> Program:
        program = Program(command, log, self._variables)
        self._stack.callback(lambda: program.process.stop(60))
        return program

    def _database(self, root: Path, url: str | None) -> None:
        self._engine = self._stack.enter_context(postgres()) if url == "here" else None
        self._url = self._engine.url if self._engine else url
        self._workers = 1 if self._url is None else 2
        self._variables = environment() | ({"SOLERA_DATABASE": self._url} if self._url else {})

    def _node(self, root: Path, number: int) -> Node:
        line = self._stack.enter_context(bad_line(self._address.port))
        device, key = self.real.devices[number - 1], self.real.keys / "nodes" / f"node-{number}"
        way: Address = replace(self._address, port=line.port)
        command = [sys.executable, "-m", "solera.federation.operate.node_process", str(device)]
        command += ["--server", str(way), "--ca", str(self.real.keys / "ca.pem"), "--key", str(key)]
        log = private_folder(home_of(device)) / "node.log"
        [(public, _)] = named([key.with_suffix(".pub")])
        return Node(device, device_number(public), line, self._program(command, log))

    def keep(self) -> None:
        """Start again what has ended; a node may be turned away while its former process counts as there."""
        self.server.keep()
        self.serve.keep()
        for node in self.nodes:
            node.program.keep(may_end=True)

    def lines(self, name: str) -> list[dict[str, Any]]:
        """A journal's whole lines; one that is being written waits."""
        path = self.folder / name
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def recovery(self) -> float | None:
        """Seconds until two more rounds are done; None if that takes too long."""
        began, done = time.monotonic(), len(self.lines("history.jsonl"))
        while time.monotonic() < began + SLOWEST:
            if len(self.lines("history.jsonl")) >= done + 2:
                return time.monotonic() - began
            self.keep()
            time.sleep(0.5)
        return None

    def incidents(self) -> dict[str, Callable[[], None]]:
        """What can happen, by name."""
        found = {
            "kill a worker": lambda: send(self._workers_now()[:1], signal.SIGKILL),
            "kill all workers": lambda: send(self._workers_now(), signal.SIGKILL),
            "pause a worker": lambda: self._pause(self._workers_now()[:1]),
            "replace the workers": lambda: send([self.server.process.pid], signal.SIGHUP),
            "kill the server": self.server.kill,
            "kill the coordinator": self.serve.kill,
            "pause the coordinator": lambda: self._pause([self.serve.process.pid]),
            "kill a node": self._draw.choice(self.nodes).program.kill,
            "kill what answers for a node": self._kill_answering,
            "pause a node": self._pause_node,
            "cut a line": lambda: self._cut([self._draw.choice(self.nodes)]),
            "cut all lines": lambda: self._cut(self.nodes),
            "reset a line": self._reset,
        }
        if self._engine is not None:
            found["kill the database"] = self._kill_database
        elif self._url is not None:
            found["cut all connections of the database"] = self._cut_database
        else:
            found["hold the database's lock"] = self._hold_database
        return found | ({"fill the disk": self._fill} if self.has_disk else {})

    def _workers_now(self) -> list[int]:
        pids = self.server.children()
        self._draw.shuffle(pids)
        return pids

    def _kill_answering(self) -> None:
        send(self._draw.choice(self.nodes).program.children(), signal.SIGKILL)

    def _pause_node(self) -> None:
        program = self._draw.choice(self.nodes).program
        self._pause([program.process.pid, *program.children()])

    def _pause(self, pids: list[int]) -> None:
        send(pids, signal.SIGSTOP)
        try:
            self._wait()
        finally:
            send(pids, signal.SIGCONT)

    def _wait(self) -> None:
        time.sleep(self._draw.uniform(3, 20))

    def _cut(self, nodes: list[Node]) -> None:
        for node in nodes:
            node.line.is_cut = True
        try:
            self._wait()
        finally:
            for node in nodes:
                node.line.is_cut = False

    def _reset(self) -> None:
        self._draw.choice(self.nodes).line.reset()

    def _kill_database(self) -> None:
        assert self._engine is not None
        self._engine.kill()
        time.sleep(self._draw.uniform(0, 10))
        self._engine.start()

    def _cut_database(self) -> None:
        import psycopg

        assert self._url is not None
        with psycopg.connect(self._url, autocommit=True) as line:
            line.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )

    def _hold_database(self) -> None:
        with closing(sqlite3.connect(home_of(self.folder) / "state.db", timeout=60)) as line:
            line.isolation_level = None
            line.execute("BEGIN IMMEDIATE")
            self._wait()
            line.execute("ROLLBACK")

    def _fill(self) -> None:
        ballast = self.folder / "ballast"
        with suppress(OSError), ballast.open("wb") as file:
            while True:
                file.write(bytes(1 << 16))
                file.flush()
        try:
            self._wait()
        finally:
            ballast.unlink()

    def memory(self) -> dict[str, int]:
        """MiB of the server's and the coordinator's processes."""
        return {"server": self.server.memory(), "coordinator": self.serve.memory()}

    def finish(self) -> dict[str, Any]:
        """End the coordinator, tell all devices, and compare with the simulator."""
        self.serve.expected = True
        self.serve.process.stop(120)
        done = FederationFolder(self.folder).progress.rounds_done
        FederationFolder.prepare(self.folder, None, {"rounds": done}, resume=True)
        for _ in range(600):  # until nodes that were just killed are back
            self.server.keep()
            for node in self.nodes:
                node.program.keep(may_end=True)
            if all("takes part" in node.program.process.said() for node in self.nodes):
                break
            time.sleep(0.5)
        self.real.run(len(self.nodes))
        self.real.nodes = {
            place: SimpleNamespace(node_id=str(node.number)) for place, node in enumerate(self.nodes, start=1)
        }
        return {
            "rounds": done,
            "difference": self.real.difference_from_simulation(done),
            "difference_with_a_round_less": self.real.difference_from_simulation(done - 1),
        }

    def problems(self, compared: dict[str, Any]) -> list[str]:
        """What journals and devices say that must not be; after the end."""
        history, events = self.lines("history.jsonl"), self.lines("events.jsonl")
        programs = {"the server": self.server, "the coordinator": self.serve}
        found = [
            f"{name} has ended by itself: {how}" for name, each in programs.items() for how in each.by_itself
        ]
        rounds = [line["round"] for line in history]
        if rounds != list(range(1, compared["rounds"] + 1)):
            found.append(f"{compared['rounds']} rounds are done, and the history has {rounds}")
        if any(line["clients"] != USERS * len(self.nodes) for line in history):
            found.append("a round has more or fewer users than there are")
        if not compared["difference"] < EXACT:
            found.append("the model is not the simulator's")
        if not compared["difference_with_a_round_less"] > 1000 * EXACT:
            found.append("the comparison with the simulator shows nothing")
        taken = Counter(str(line["node"]) for line in events if line["event"] == "taken")
        for node in self.nodes:
            with closing(Device.open(node.device)) as device:
                sent = Ledger(device.store).uploads(FederationFolder(self.folder).identity.federation)
            if sent < taken[str(node.number)]:
                found.append(
                    f"{node.device.name} accounts for {sent} uploads, {taken[str(node.number)]} came"
                )
        return found


def mounted(folder: Path, stack: ExitStack) -> bool:
    """Whether the server's folder has become a small disk of its own."""
    folder.mkdir(mode=0o700)
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}m,mode=700", "tmpfs", str(folder)]
    with suppress(OSError):
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            stack.callback(subprocess.run, ["umount", "-l", str(folder)], check=False)
            return True
    return False


def tell(text: str) -> None:
    """Say what goes on."""
    print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)


def soak(given: argparse.Namespace) -> dict[str, Any]:
    """Disturb until the time is over, and report."""
    draw = random.Random(given.seed)
    recovered: defaultdict[str, list[float | None]] = defaultdict(list)
    root = Path(given.folder or tempfile.mkdtemp(prefix="solera-soak-")).resolve()
    root.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        tell(f"everything is in {root}")
        made = Soak(root, given, stack)
        first = made.recovery()
        if first is None:
            raise SystemExit(
                f"no two rounds within {SLOWEST:g} s: see {root}/serve.log and {root}/server.log"
            )
        begin = made.memory()
        tell(f"the first two rounds after {first:.0f} s")
        todo, until = list[str](), time.monotonic() + 60 * given.minutes
        while time.monotonic() < until:
            what = made.incidents()
            todo = todo or draw.sample(sorted(what), len(what))  # each once, before any comes again
            name = todo.pop()
            what[name]()
            seconds = made.recovery()
            recovered[name].append(None if seconds is None else round(seconds, 1))
            tell(f"{name}: {'NO RECOVERY' if seconds is None else f'{seconds:.0f} s'}")
            time.sleep(draw.uniform(0, 5))
        end = made.memory()
        tell("comparing with the simulator")
        compared = made.finish()
        problems = made.problems(compared)
        problems += [f"no recovery after: {name}" for name, each in recovered.items() if None in each]
        events = Counter(line["event"] for line in made.lines("events.jsonl"))
    return {
        "minutes": given.minutes,
        "database": given.postgres or "sqlite",
        "nodes": given.nodes,
        **compared,
        "void_rounds": events["void"],
        "failed_runs": events["failed"],
        "incidents": sum(map(len, recovered.values())),
        "seconds_until_two_rounds": dict(sorted(recovered.items())),
        "memory_mib": {"begin": begin, "end": end},
        "problems": problems,
    }


def main() -> int:
    """Read the options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60.0, help="of incidents, after two rounds in peace")
    parser.add_argument("--postgres", nargs="?", const="here", metavar="URL", help="without URL: its own")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--every", type=int, default=5, help="seconds between rounds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", help="an empty one; default: a temporary one, which stays")
    found = soak(parser.parse_args())
    print(json.dumps(found, indent=1))
    return 1 if found["problems"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
