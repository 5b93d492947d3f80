"""A federation with TLS, masks and noise that is kept running by its commands while they are killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kept import SOLERA, Kept, wait_until
from real_nodes import LEAST, RealNodes

from commands import environment, solera
from solera.dp.settings import DP

NODES = 4
NOISE = 2.0
ROUNDS = 500  # that ε is accounted for; there is no time for as many
DEADLINE = 12
WRITER = Path(__file__).with_name("device_writer.py")
SERVER = {"solera server start": "", "server's worker": "solera.federation.web.serve"}
NODE = {"solera node start": "", "worker": "solera.federation.node.worker"}
RUN = "solera federation run"


@dataclass
class Track:
    """Kills of one sort at random moments, where `starts` is given since it has started the last time."""

    kill: Callable[[], bool]
    left: int
    gap: tuple[float, float]
    starts: Callable[[], int] | None = None
    _seen: int = 0
    _due: float | None = None

    def strikes(self, draw: random.Random) -> bool:
        """Kill if it is time; False if it is not, or what is to be killed is not there."""
        if self._due is None:
            if self.starts is None or self.starts() > self._seen:
                self._due = time.monotonic() + draw.uniform(*self.gap)
            return False
        seen = self.starts() if self.starts else 0
        if time.monotonic() < self._due or not self.kill():
            return False
        self.left, self._seen, self._due = self.left - 1, seen, None
        return True


class UnderKills(RealNodes):
    """What is killed is started again by the documented command."""

    def __init__(self, root: Path, publisher_key: Path, seed: int) -> None:
        super().__init__(root, publisher_key, NODES, seed)
        self.kills: Counter[str] = Counter()
        self.written: dict[Path, list[int]] = {home: [] for home in self.homes}
        self.nodes: list[Kept] = []

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Everything, each started again whenever it ends."""
        server = ("server", "start", self.folder, "--keys", self.keys, "--port", self.address.port)
        with ExitStack() as stack:

            def keep(name: str, *command: object) -> Kept:
                kept = Kept(self.root / f"{name}.log", *command)
                stack.callback(kept.stop)
                return kept

            self.server = keep("server", *server)
            wait_until(lambda: "nodes are online" in self.server.said(), 120, "no server")
            for home in self.homes:
                to = ("--server", str(self.address), "--ca", self.address.ca, "--key", self.key_of(home))
                self.nodes.append(keep(home.name, "node", "start", home, *to))
            wait_until(lambda: f"{NODES} of {NODES} nodes" in self.server.said(), 180, "no nodes")
            noise = DP(noise=NOISE, delta=1e-5, clip=1.0, mode="distributed")
            self.begin(rounds=ROUNDS, deadline=DEADLINE, dp=noise)
            self.rounds = keep("run", "federation", "run", self.folder, "--resume")
            yield

    # What is killed

    def _kill(self, kind: str, pid: int | None) -> bool:
        if pid is None:
            return False
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        self.kills[kind] += 1
        return True

    def kill_server(self) -> bool:
        """The run's command, or one of the server's own programs."""
        kind = self.draw.choices([RUN, *SERVER], [9, 1, 2])[0]
        if kind == RUN:
            return self._kill(kind, self.rounds.pid)
        words = SERVER[kind]
        return self._kill(kind, self.server.child(words) if words else self.server.pid)

    def kill_node(self) -> bool:
        """One of the two programs of a node, if most nodes are there."""
        there = [node for node in self.nodes if node.child(NODE["worker"])]
        if len(there) <= LEAST:
            return False
        node = self.draw.choice(there)
        kind = self.draw.choices([*NODE], [3, 3])[0]
        words = NODE[kind]
        return self._kill(kind, node.child(words) if words else node.pid)

    def kill_device_command(self) -> bool:
        """A command, or a program that writes, in the folder of a node that is at work."""
        home = self.draw.choice(self.homes)
        kind = self.draw.choice(["writer", "add", "import", "status", "recommend"])
        begin = max(self.written[home], default=999) + 1
        table = self.root / "import.csv"
        table.write_text("id,time\n" + "".join(f"{i % 4},{10_000 + i}\n" for i in range(50)))
        command: dict[str, list[object]] = {
            "writer": [sys.executable, WRITER, home, "u0", begin],
            "add": [*SOLERA, "device", "add", home, f"Film {self.draw.randrange(4)}", "--user", "u0"],
            "import": [*SOLERA, "device", "import", home, "csv", table, "--user", "u0"],
            "status": [*SOLERA, "device", "status", home],
            "recommend": [*SOLERA, "device", "recommend", home, "--user", "u1"],
        }
        process = subprocess.Popen(
            [*map(str, command[kind])],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdout
        said = [process.stdout.readline()] if kind == "writer" else []
        time.sleep(self.draw.uniform(0.0, 1.0 if kind == "writer" else 3.0))
        killed = process.poll() is None and self._kill(f"device {kind}", process.pid)
        said += process.stdout.readlines()
        process.wait()
        if kind == "writer":
            assert said[0], "the device cannot be written"
            self.written[home] += [int(line) for line in said if line.endswith("\n")]
        return killed

    def storm(self, kills: int, tell: Callable[[str], None]) -> None:
        """A seventh of the kills are of the server's side, a quarter of nodes, the rest of commands.

        They begin when a round is done. The server is killed within the time of two rounds after its start.
        """
        wait_until(lambda: self.lines("history.jsonl"), 300, "no round without kills")
        usual = self.lines("history.jsonl")[0]["seconds"]
        tracks = [
            Track(self.kill_server, max(1, kills // 7), (0.0, 2 * usual), starts=self._starts),
            Track(self.kill_node, max(1, kills // 4), (5.0, 60.0)),
        ]
        rest = kills - sum(track.left for track in tracks)
        tracks.append(Track(self.kill_device_command, rest, (1.0, 20.0)))
        while left := [track for track in tracks if track.left]:
            for track in left:
                if track.strikes(self.draw):
                    rounds = len(self.lines("history.jsonl"))
                    tell(f"{sum(self.kills.values())} kills, {rounds} rounds, {dict(self.kills)}")
            time.sleep(0.2)

    def _starts(self) -> int:
        """How often a run has begun to work."""
        return sum(line["event"] == "started" for line in self.lines("events.jsonl"))

    def finish(self) -> dict[str, Any]:
        """A last round with everybody, by the command that ends the federation."""
        before = len(self.lines("history.jsonl"))
        wait_until(
            lambda: any(
                line["masked"]["survivors"] == NODES for line in self.lines("history.jsonl")[before:]
            ),
            300,
            "no round with everybody",
        )
        self.rounds.stop()
        rounds = len(self.lines("openings.jsonl")) + 1
        last = ("--nodes", NODES, "--rounds", rounds, "--deadline", 60, "--json")
        done = solera("federation", "run", self.folder, "--resume", *last, timeout=300)
        assert done.returncode == 0, done.stderr
        return self.lines("history.jsonl")[-1]
