"""A federation with a fleet: many nodes in few processes, one real server, and what it costs.

Nodes have small random histories. A share of them misbehaves in every round that they are asked in: `slow`
ones answer late, `silent` ones never, `leaving` ones are gone for good and `returning` ones for a while,
`old` ones speak an older protocol, `lying` ones send numbers or shares that no honest node sends.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import Field

from solera.core.errors import ConfigError, DeployError
from solera.core.files import write_atomically
from solera.core.types import Frozen
from solera.deploy.common import flower
from solera.deploy.common.authority import ROSTER_PUBLIC, make_keys
from solera.deploy.common.flower import Address
from solera.deploy.common.settings import Settings
from solera.deploy.node.membership import pin
from solera.deploy.operate import submit, superlink
from solera.deploy.operate.control import Control
from solera.deploy.operate.fleet_nodes import BEHAVIOURS, Plan, edge_of
from solera.deploy.operate.processes import Process, free_port
from solera.deploy.operate.server_load import Load, watching
from solera.deploy.secure.roster import ROSTER, make_roster, read_roster, read_roster_key
from solera.deploy.server.folder import FederationFolder
from solera.device import keys as publisher
from solera.device.bundle import Bundle, Item
from solera.device.device import Device
from solera.device.ledger import Ledger
from solera.device.policy import Policy
from solera.device.publish import start
from solera.dp.settings import DP

Tell = Callable[[str], None]
_LEAST = 3  # nodes and users of a masked sum
_HISTORY = 12  # items of every user
MOST = 5000  # nodes


class FleetSettings(Frozen):
    """What is asked of a fleet."""

    nodes: int = Field(ge=2, le=MOST)
    rounds: int = Field(default=3, ge=1, le=1000)
    per_round: int = Field(default=0, ge=0, description="nodes asked in a round; 0 for all")
    edges: int = Field(default=0, ge=0, description="edges that all nodes are behind; 0 for none")
    masked: bool = False
    users: int = Field(default=1, ge=1, le=100)
    items: int = Field(default=200, ge=20)
    shares: dict[str, float] = Field(default_factory=dict)  # of the nodes, by behaviour
    slow: float = 5.0
    away: float = 30.0
    minutes: float = Field(default=30.0, gt=0)
    processes: int = Field(default=2, ge=1, le=32)
    deadline: float = 600.0
    echo: int = Field(default=0, ge=0, description="rounds of an echo with the same bytes and exchanges")
    seed: int = 0


@dataclass
class FleetReport:
    """What a fleet has shown."""

    settings: dict[str, Any]
    rounds: list[submit.Round] = field(default_factory=list)
    echoes: list[submit.Round] = field(default_factory=list)
    joined: float = 0.0  # seconds until all nodes were there
    load: Load | None = None
    done: dict[str, int] = field(default_factory=dict)  # by the nodes
    answering: dict[str, float] = field(default_factory=dict)  # their seconds, by kind of message
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """For --json."""
        return asdict(self)


def behaviours_of(settings: FleetSettings) -> list[str]:
    """How every node behaves: as many of each sort as the shares say, at random places."""
    unknown = settings.shares.keys() - set(BEHAVIOURS)
    if unknown or sum(settings.shares.values()) > 1 or any(v < 0 for v in settings.shares.values()):
        raise ConfigError(
            f"shares {settings.shares} are not shares of {', '.join(BEHAVIOURS)}",
            "for example --share silent=0.05 --share slow=0.05",
        )
    found: list[str] = []
    for behaviour, share in settings.shares.items():
        found += [behaviour] * round(share * settings.nodes)
    found = (found + [""] * settings.nodes)[: settings.nodes]
    random.Random(settings.seed).shuffle(found)
    return found


def run(settings: FleetSettings, tell: Tell, on_round: Callable[[submit.Round], None]) -> FleetReport:
    """Make everything, run the rounds, and take everything down again."""
    behaviours, began = behaviours_of(settings), time.monotonic()
    if settings.edges > settings.nodes:
        raise ConfigError(f"{settings.edges} edges need at least as many nodes", "give fewer --edges")
    if settings.edges and settings.echo:
        raise ConfigError("an echo does not pass edges", "leave out --echo or --edges")
    report = FleetReport(settings.model_dump())
    with tempfile.TemporaryDirectory(prefix="solera-fleet-") as name, ExitStack() as stack:
        root = Path(name).resolve()
        tell(f"{settings.nodes:,} keys and devices")
        bundle = prepare(root, settings)
        address = Address("127.0.0.1", free_port(), root / "keys" / "ca.pem")
        tell(f"the server, with TLS, at {address}")
        server, asked = stack.enter_context(
            superlink.running(root / "server", address, root / "keys", settings.nodes + 10)
        )
        load = stack.enter_context(watching(server.pid, root / "server" / "flower" / "state.db"))
        edges = stack.enter_context(_edges(root, address, settings, asked))
        tell(f"{settings.nodes:,} nodes in {settings.processes} processes")
        plan = Plan(
            superlink=str(address),
            edges=[each.address for each in edges],
            ca=root / "keys" / "ca.pem",
            keys=root / "keys" / "nodes",
            homes=root,
            behaviours=behaviours,
            seconds=60 * settings.minutes,
            slow=settings.slow,
            away=settings.away,
        )
        started = time.monotonic()
        fleet = stack.enter_context(_fleet(root, plan, settings.processes))
        submit.wait_for_nodes(asked, settings.edges or settings.nodes)
        for each in edges:
            each.wait()
        report.joined = time.monotonic() - started
        tell(f"{settings.rounds} rounds")
        FederationFolder.create(root / "server", bundle, _federation(settings))
        if settings.masked:
            signer = read_roster_key(root / "keys" / ROSTER_PUBLIC)
            FederationFolder(root / "server").keep_roster(read_roster(root / "keys" / ROSTER, signer))
        submit.run(root / "server", on_round)
        report.rounds = FederationFolder(root / "server").lines("history.jsonl")
        if settings.echo:
            tell(f"{settings.echo} echoes of the same bytes and exchanges")
            report.echoes = _echo(root / "server", settings.echo, report.rounds[-1])
        for process in fleet:
            process.stop(patience=20.0)
            _count(report, process)
        report.load = load
    report.seconds = time.monotonic() - began
    return report


def prepare(root: Path, settings: FleetSettings) -> Bundle:
    """Keys, a bundle, and a device with a small history for every node."""
    draw = random.Random(settings.seed)
    keys = root / "keys"
    make_keys(keys, settings.nodes)
    if settings.masked:
        roster = make_roster(keys)
        write_atomically(keys / ROSTER, roster.model_dump_json())
    secret, _ = publisher.make_keys(root / "publisher")
    items = [Item(str(number), f"Item {number}", None) for number in range(settings.items)]
    share = min(1.0, settings.per_round / settings.nodes) if settings.per_round else 1.0
    options = {"embedding_size": 8, "clients_per_round": share}
    bundle = start("fedmf", items, root / "start.bundle", secret, options=options)
    policy = Policy(least_nodes=_LEAST, least_users=_LEAST, least_share=1e-3, rounds_per_day=1_000_000)
    for number in range(1, settings.nodes + 1):
        device = Device.create(root / f"home-{number}", bundle)
        for user in range(settings.users):
            seen = draw.sample(range(settings.items), _HISTORY)
            device.add_all([(str(item), time_) for time_, item in enumerate(seen)], f"u{user}", "fleet")
        Ledger(device.store).join_next()
        policy.write(device.store)
        device.close()
        if settings.masked:
            key = keys / "nodes" / f"node-{number}"
            pin(root / f"home-{number}", key, keys / "ca.pem", keys / ROSTER, keys / ROSTER_PUBLIC)
    return bundle


def _federation(settings: FleetSettings) -> Settings:
    return Settings(
        rounds=settings.rounds,
        min_nodes=settings.edges or max(1, settings.nodes // 2),
        deadline=settings.deadline,
        straggler_wait=max(10.0, (settings.per_round or settings.nodes) / 20),  # a process answers in turn
        over_selection=1.3 if settings.per_round else 1.0,
        secure_aggregation=settings.masked,
        threshold=0.67,
        least_nodes=_LEAST,
        least_users=_LEAST,
        least_share=1e-3,
        dp=DP(noise=1.0, delta=1e-5, clip=1.0, mode="distributed") if settings.masked else None,
    )


@contextmanager
def _fleet(root: Path, plan: Plan, processes: int) -> Iterator[list[Process]]:
    """The processes of a fleet, each with its part of the nodes."""
    path, nodes = root / "plan.json", len(plan.behaviours)
    write_atomically(path, plan.model_dump_json())
    bounds = [nodes * place // processes for place in range(processes + 1)]
    started: list[Process] = []
    try:
        for first, end in pairwise(bounds):
            command = [sys.executable, "-m", "solera.deploy.operate.fleet_nodes", str(path)]
            command += ["--first", str(first), "--last", str(end - 1)]
            started.append(Process(command, flower.environment(root), root / f"fleet-{first}.log"))
        yield started
    finally:
        for process in started:
            process.stop()


@dataclass
class _Edge:
    """An edge's process."""

    process: Process
    address: str
    members: int

    def wait(self, seconds: float = 300.0) -> None:
        """Wait until all its members are connected."""
        until = time.monotonic() + seconds
        while f"{self.members} of {self.members} members" not in self.process.said():
            if not self.process.is_running or time.monotonic() > until:
                raise DeployError(
                    f"members of an edge are missing: {self.process.said()[-300:]}", "give fewer --nodes"
                )
            time.sleep(0.5)


@contextmanager
def _edges(root: Path, server: Address, settings: FleetSettings, asked: Control) -> Iterator[list[_Edge]]:
    """The edges' processes, each with a certificate, and a key that the server knows."""
    started: list[_Edge] = []
    nodes = range(settings.nodes if settings.edges else 0)
    members = Counter(edge_of(node, settings.nodes, settings.edges) for node in nodes)
    numbers = iter(range(1, settings.nodes + 1))
    try:
        for place, count in sorted(members.items()):
            keys, own = root / f"edge-{place + 1}", root / f"edge-key-{place + 1}"
            make_keys(keys, 0)
            make_keys(own, 1)
            for _ in range(count):
                name = f"node-{next(numbers)}.pub"
                shutil.copy(root / "keys" / "nodes" / name, keys / "nodes" / name)
            asked.register([own / "nodes" / "node-1.pub"])
            here = Address("127.0.0.1", free_port())
            command = flower.edge(keys, here, server, own / "nodes" / "node-1")
            process = Process(command, flower.environment(root), root / f"edge-{place + 1}.log")
            started.append(_Edge(process, str(here), count))
        yield started
    finally:
        for each in started:
            each.process.stop()


def _echo(folder: Path, rounds: int, last: submit.Round) -> list[submit.Round]:
    """As many exchanges with as many bytes as the last round had, by an app that does nothing else."""
    stages = last["stages"].values()
    nodes = max(stage["nodes"] for stage in stages)
    exchanges = [[stage["down"] // stage["nodes"], stage["up"] // stage["nodes"]] for stage in stages]
    plan = {"rounds": rounds, "nodes": nodes, "exchanges": exchanges}
    write_atomically(folder / "echo.json", json.dumps(plan))
    submit.run(folder, lambda entry: None, server_app="solera.deploy.operate.fleet_echo:server")
    return FederationFolder(folder).lines("echoes.jsonl")


def _count(report: FleetReport, process: Process) -> None:
    """Add what the nodes of a process did."""
    lines = process.said().splitlines()
    try:
        found = json.loads(lines[-1])
    except (ValueError, IndexError):
        report.done["processes without a report"] = report.done.get("processes without a report", 0) + 1
        return
    report.done = dict(Counter(report.done) + Counter(found["counts"]))
    report.answering = dict(Counter(report.answering) + Counter(found["seconds"]))
