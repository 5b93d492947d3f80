"""Measure the cost of a round over Flower with real processes, next to an echo of the same bytes."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from solera.data.interactions import Interactions
from solera.deploy.common import flower
from solera.deploy.common.authority import ROSTER_PUBLIC
from solera.deploy.common.authority import make_keys as make_node_keys
from solera.deploy.common.flower import Address
from solera.deploy.common.settings import Settings
from solera.deploy.node.membership import pin
from solera.deploy.operate import submit, superlink, supernode
from solera.deploy.operate.households import Households
from solera.deploy.operate.processes import Process, free_port
from solera.deploy.secure.roster import ROSTER, make_roster
from solera.deploy.server.folder import FederationFolder
from solera.device.device import Device
from solera.device.keys import make_keys
from solera.device.policy import Policy
from solera.device.publish import catalogue_of, start
from solera_research.speed.flower_echo import PLAN

Say = Callable[[str], None]


@dataclass(frozen=True)
class Cost:
    """Medians over the rounds but the first, in seconds; bytes of all nodes together."""

    users: int
    nodes: int
    bytes_down: int
    bytes_up: int
    echo: float
    round: float
    training: float  # of the slowest node

    @property
    def ratio(self) -> float:
        """Of a round without its training to an echo of the same bytes."""
        return (self.round - self.training) / self.echo


def measure(
    data: Interactions,
    method: str,
    *,
    nodes: int,
    users: int,
    rounds: int,
    say: Say,
    secure_aggregation: bool = False,
) -> Cost:
    """Train some users of a data set on nodes of this machine; then send as many bytes for nothing."""
    with tempfile.TemporaryDirectory(prefix="solera-bench-") as name, ExitStack() as stack:
        root = Path(name)
        keys = root / "keys"
        make_node_keys(keys, nodes)
        devices = _devices(root, data, method, nodes, users)
        if secure_aggregation:
            _pin(root / "server", devices, keys)
        address = Address("127.0.0.1", free_port(), keys / "ca.pem")
        say("starting the server")
        stack.enter_context(superlink.running(root / "server", address, keys))

        say(f"{rounds} rounds of {method}")
        with _nodes(devices, address, keys) as running:
            bundle = Device.open(devices[0]).bundle
            settings = Settings(
                rounds=rounds,
                min_nodes=nodes,
                over_selection=1,
                secure_aggregation=secure_aggregation,
                least_nodes=2,
                least_users=1,
                sums_without_noise=rounds,
            )
            FederationFolder.create(root / "server", bundle, settings)
            submit.run(root / "server", lambda entry: None, nodes=nodes)
        history = FederationFolder(root / "server").lines("history.jsonl")
        training = _training(running)
        down, up = (max(entry["bytes"][way] for entry in history) for way in ("down", "up"))

        say(f"{rounds} echoes of the same bytes")
        (root / "server" / "history.jsonl").unlink()
        plan = {"rounds": rounds, "down": down // nodes, "up": up // nodes}
        (root / "server" / PLAN).write_text(json.dumps(plan), encoding="utf-8")
        with _bare_nodes(devices, address, keys):
            submit.run(
                root / "server",
                lambda entry: None,
                nodes=nodes,
                server_app="solera_research.speed.flower_echo:server",
                client_app="solera_research.speed.flower_echo:client",
            )
        echoes = FederationFolder(root / "server").lines("history.jsonl")
        return Cost(
            users=users,
            nodes=nodes,
            bytes_down=down,
            bytes_up=up,
            echo=median(entry["seconds"] for entry in echoes[1:]),
            round=median(entry["seconds"] for entry in history[1:]),
            training=training,
        )


def _devices(root: Path, data: Interactions, method: str, nodes: int, users: int) -> list[Path]:
    secret, _ = make_keys(root / "publisher")
    bundle = start(method, catalogue_of(data), root / "start.bundle", secret)
    households = Households.choose(data, [root / f"node{node}" for node in range(nodes)], users)
    households.create(bundle, Policy(least_nodes=2, least_users=1, sums_without_noise=1000))
    return households.folders


def _pin(server: Path, devices: list[Path], keys: Path) -> None:
    """Pin the signed list of nodes on the server and all nodes."""
    server.mkdir()
    FederationFolder(server).keep_roster(make_roster(keys))
    for number, device in enumerate(devices):
        pin(device, _key(keys, number), keys / "ca.pem", server / ROSTER, keys / ROSTER_PUBLIC)


def _key(keys: Path, number: int) -> Path:
    return keys / "nodes" / f"node-{number + 1}"


@contextmanager
def _nodes(devices: list[Path], address: Address, keys: Path) -> Iterator[list[supernode.Running]]:
    with ExitStack() as stack, ThreadPoolExecutor(len(devices)) as pool:

        def begin(number: int) -> supernode.Running:
            return stack.enter_context(supernode.running(devices[number], address, _key(keys, number)))

        yield list(pool.map(begin, range(len(devices))))


@contextmanager
def _bare_nodes(devices: list[Path], address: Address, keys: Path) -> Iterator[None]:
    """Flower's nodes as they are."""
    started: list[Process] = []
    try:
        for number, device in enumerate(devices):
            home = flower.home_of(device)
            line = flower.supernode(device, address, _key(keys, number), free_port())
            started.append(Process(line, flower.environment(home), home / "bare.log"))
        yield
    finally:
        for process in started:
            process.stop()


def _training(running: list[supernode.Running]) -> float:
    """The median over the rounds but the first of what the slowest node took to answer."""
    each = []
    for node in running:
        text = node.worker_log.read_text(encoding="utf-8")
        lines = [line for line in text.splitlines() if '"answered"' in line]
        answers: list[dict[str, Any]] = [json.loads(line) for line in lines]
        each.append([answer["seconds"] for answer in answers if answer["kind"] in {"train", "mask"}])
    return float(np.median(np.max(each, axis=0)[1:]))
