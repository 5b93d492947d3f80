"""Many nodes in one process, for load tests: real keys, TLS, signatures, masks and training.

Each node has its own key, its own connection and its own device folder, speaks Flower's protocol through a
line, and answers with the code that every node answers with. Some misbehave, as fleet.py says.

    python -m solera.deploy.operate.fleet_nodes PLAN --first 0 --last 499
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import httpx
import numpy as np
from flwr.app import Message

from solera.core.errors import SoleraError
from solera.core.types import Frozen
from solera.deploy.common.flower import Address, home_of
from solera.deploy.common.frames import LARGEST, LARGEST_AT_EDGE
from solera.deploy.common.messages import KINDS, from_content, to_content
from solera.deploy.common.private_files import private_folder
from solera.deploy.common.protocol import PROTOCOL, Packet, RefusalError
from solera.deploy.node.answers import answer
from solera.deploy.node.behind_edge import BehindEdge
from solera.deploy.node.line import Line, keep_beating, read_key, trust
from solera.deploy.operate import fleet_echo
from solera.deploy.operate.processes import ended_by_signals

BEHAVIOURS = ("slow", "silent", "leaving", "returning", "old", "lying")
_WORK = ("train", "mask")  # messages by which nodes misbehave: those in the middle of a round
_LOG = logging.getLogger("solera.fleet")


class Plan(Frozen):
    """What a fleet does, as its processes read it."""

    superlink: str
    ca: Path
    edges: list[str]  # addresses; the certificates are in homes/edge-1, edge-2, …
    keys: Path  # node-1, node-2, …
    homes: Path  # home-1, home-2, …
    behaviours: list[str]  # of every node; empty for one that behaves
    seconds: float  # after which the fleet ends, whatever happens
    slow: float  # seconds that a slow node waits before it answers
    away: float  # seconds after which a returning node is there again


class FleetNode:
    """One node of a fleet."""

    def __init__(self, plan: Plan, number: int, line: Line, tally: Tally) -> None:
        self._plan, self._number, self._tally = plan, number, tally
        self.line, self._behaviour = line, plan.behaviours[number]
        self._home = plan.homes / f"home-{number + 1}"
        self._behind: BehindEdge | None = None
        if plan.edges:
            key = plan.keys / f"node-{number + 1}"
            self._behind = BehindEdge(key, plan.ca, private_folder(home_of(self._home)))

    def run(self) -> None:
        """Take part until the fleet ends, or until the node leaves."""
        stop = self.line.stop
        if stop.wait(random.uniform(0.0, 0.01 * len(self._plan.behaviours))):  # not all at once
            return
        try:
            self.line.join()
            self._tally.add("joined")
            while not stop.is_set():
                message = self.line.receive()
                if message is not None:
                    self._answer(message)
        except (httpx.HTTPError, SoleraError) as error:
            if not stop.is_set():
                self._tally.add("ended by an error")
                _LOG.warning("node %s ends: %s", self._number, error)
        finally:
            with suppress(RuntimeError):
                self.line.leave()

    def _answer(self, message: Message) -> None:
        if message.metadata.message_type == fleet_echo.TYPE:
            self.line.send(fleet_echo.echo(message, self._number), 0.0)
            return
        kind = KINDS.get(message.metadata.message_type, "")
        behaviour = self._behaviour if kind in _WORK else ""
        stop = self.line.stop
        if behaviour:
            self._tally.add(behaviour)
        match behaviour:
            case "silent":
                return
            case "slow":
                stop.wait(self._plan.slow)
            case "leaving":
                stop.set()
                return
            case "returning":
                self.line.rejoin_after(self._plan.away)
                return
            case _:
                pass
        began = time.perf_counter()
        try:
            with self._tally.working:
                began_work = time.thread_time()
                reply = self._reply(kind, from_content(message.content), behaviour)
                worked = time.thread_time() - began_work
        except RefusalError as error:
            _LOG.warning("node %s cannot read a message: %s", self._number, error)
            return
        self._tally.add(kind, worked)
        self.line.send(Message(to_content(reply), reply_to=message), time.perf_counter() - began)

    def _reply(self, kind: str, packet: Packet, behaviour: str) -> Packet:
        """The node's answer, as it behaves; behind an edge, in an envelope."""

        def answered(kind: str, packet: Packet) -> Packet:
            reply = answer(kind, packet, self._home)
            if "declined" in reply.fields:
                self._tally.add("declined: " + str(reply.fields["declined"])[:80])
            if behaviour == "old":
                return Packet(reply.fields | {"protocol": PROTOCOL - 1}, reply.arrays)
            if behaviour == "lying":
                return Packet(reply.fields, {name: _lie(v) for name, v in reply.arrays.items()})
            return reply

        if self._behind is None:
            return answered(kind, packet)
        reply = self._behind.answer(answered, kind, packet)
        assert reply is not None
        return reply


def _lie(values: np.ndarray) -> np.ndarray:
    """What no honest node sends: numbers far too large, or other bytes."""
    if values.dtype.kind == "f":
        return np.full_like(values, 1e30)
    changed = values.copy()
    changed[-1:] ^= 1
    return changed


class Tally:
    """What the nodes of a process did, and the processor seconds that answers took."""

    def __init__(self) -> None:
        self.working = threading.BoundedSemaphore(4)  # answers at a time: each waits for the disk twice
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.seconds: dict[str, float] = {}

    def add(self, what: str, seconds: float = 0.0) -> None:
        """Count one."""
        with self._lock:
            self.counts[what] += 1
            self.seconds[what] = self.seconds.get(what, 0.0) + seconds

    def to_json(self) -> str:
        """All counts."""
        with self._lock:
            seconds = {name: round(v, 3) for name, v in self.seconds.items() if v}
            return json.dumps({"counts": dict(self.counts), "seconds": seconds})


def edge_of(number: int, nodes: int, edges: int) -> int:
    """Which of so many edges a node is behind."""
    return number * edges // nodes


def run(plan: Plan, first: int, last: int, tally: Tally) -> None:
    """Run nodes until the plan's time is over or the process is asked to end."""
    stop = threading.Event()
    addresses = [Address.parse(plan.superlink, plan.ca)]
    if plan.edges:
        addresses = [
            Address.parse(each, plan.homes / f"edge-{place}" / "ca.pem")
            for place, each in enumerate(plan.edges, start=1)
        ]
    trusted = [trust(address) for address in addresses]
    nodes = []
    for number in range(first, last + 1):
        place = edge_of(number, len(plan.behaviours), len(addresses))
        key = read_key(plan.keys / f"node-{number + 1}")
        largest = LARGEST_AT_EDGE if plan.edges else LARGEST
        line = Line(addresses[place], key, trusted=trusted[place], largest=largest)
        nodes.append(FleetNode(plan, number, line, tally))
    lines = [node.line for node in nodes]
    threading.stack_size(512 * 1024)
    threads = [threading.Thread(target=node.run, daemon=True) for node in nodes]
    threads.append(threading.Thread(target=keep_beating, args=(lines, stop), daemon=True))
    for thread in threads:
        thread.start()
    try:
        until = time.monotonic() + plan.seconds
        while time.monotonic() < until and any(thread.is_alive() for thread in threads[:-1]):
            time.sleep(0.5)
    finally:
        stop.set()
        for line in lines:
            line.stop.set()


def main() -> None:
    """Started by fleet.py, which reads the last line."""
    parser = argparse.ArgumentParser(description="Nodes of a fleet.")
    parser.add_argument("plan", type=Path)
    parser.add_argument("--first", type=int, required=True)
    parser.add_argument("--last", type=int, required=True)
    given = parser.parse_args()
    logging.basicConfig(format="%(levelname)s: %(message)s")
    plan, tally = Plan.model_validate_json(given.plan.read_text(encoding="utf-8")), Tally()
    import torch  # noqa: PLC0415 - before the threads begin

    torch.set_num_threads(1)
    with ended_by_signals(), suppress(KeyboardInterrupt):
        run(plan, given.first, given.last, tally)
    sys.stdout.write(tally.to_json() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
