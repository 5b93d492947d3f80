"""A federation of real processes: a server and nodes with TLS and keys, real histories."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from commands import environment
from in_process import solera
from solera.core.method import Method
from solera.core.protection import Chain
from solera.data.datasets import load
from solera.data.interactions import Interactions
from solera.data.ragged import Ragged
from solera.data.sampling import ClientData
from solera.device.bundle import Bundle
from solera.device.device import Device
from solera.device.ledger import Ledger
from solera.device.policy import Policy
from solera.device.publish import catalogue_of, start
from solera.dp.rounds import PrivateRounds
from solera.engine import BlockTraining, Simulation
from solera.federation.common.address import Address
from solera.federation.common.authority import make_keys
from solera.federation.node.members import Members
from solera.federation.node.membership import pin
from solera.federation.operate import node_process, server
from solera.federation.operate import serve as rounds
from solera.federation.operate.processes import free_port
from solera.federation.server.coordinator import Coordinator
from solera.federation.server.folder import FederationFolder

SEED = 11


@contextmanager
def few_nodes(
    root: Path,
    key: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    masked: bool,
    start: bool = True,
    count: int = 3,
) -> Iterator[RealFederation]:
    """FedMF on some running nodes with five people each; `masked` ones have a roster and trust it."""
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    keys = root / "keys"
    make_keys(keys, count)
    if masked:
        made = solera("federation", "roster", keys, "--json")
        assert made.returncode == 0, made.stderr
    with RealFederation(root, keys=keys, key=key, data=people(), method="fedmf", users=[5] * count) as real:
        for number, device in enumerate(real.devices if masked else (), start=1):
            assert pin(device, keys / "nodes" / f"node-{number}", keys / "ca.pem", None)
        if start:
            real.start()
        yield real


OPEN = Policy(least_nodes=2, least_users=1, rounds_per_day=100_000, sums_without_noise=100_000)


class RealFederation:
    """Nodes 1, 2, … with some users of a data set each, in order."""

    def __init__(
        self, root: Path, *, keys: Path, key: Path, data: Interactions, method: str, users: list[int]
    ) -> None:
        self.root, self.keys, self.data = root, keys, data
        self.folder = root / "server"
        self.bundle: Bundle = start(
            method, catalogue_of(data), root / "start.bundle", key, precision="double", seed=SEED
        )
        self.address = Address("127.0.0.1", free_port(), keys / "ca.pem")
        self.stack = ExitStack()
        self.devices: list[Path] = []
        self.histories: dict[str, np.ndarray] = {}
        first = 0
        for number, count in enumerate(users, start=1):
            self.devices.append(root / f"node{number}")
            device = Device.create(self.devices[-1], self.bundle)
            for user in range(first, first + count):
                items = data.by_user.row(user)[:60]
                _, once = np.unique(items, return_index=True)
                self.histories[f"u{user}"] = items[np.sort(once)]
                rows = [(data.item_map.id(int(item)), time) for time, item in enumerate(items)]
                device.add_all(rows, f"u{user}", "test")
            Ledger(device.store).join_next()
            OPEN.write(device.store)
            device.close()
            first += count
        self.server: Any = None
        self.database: str | None = None  # another one than a file of SQLite
        self.workers = 1
        self.socket: Path | None = None  # where nginx reaches the workers
        self.nodes: dict[int, Any] = {}
        self.ways: dict[int, Address] = {}  # of nodes that reach the server otherwise

    def __enter__(self) -> RealFederation:
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def start_server(self) -> None:
        running = server.running(
            self.folder,
            self.address,
            self.keys,
            database=self.database,
            workers=self.workers,
            path=self.socket,
        )
        self.server = self.stack.enter_context(running)

    def start_node(self, number: int) -> None:
        device, key = self.devices[number - 1], self.keys / "nodes" / f"node-{number}"
        way = self.ways.get(number, self.address)
        running = node_process.running(device, way, key, "misbehaving:answers_of")
        self.nodes[number] = self.stack.enter_context(running)

    def start(self) -> None:
        """The server, and then all nodes at once."""
        self.start_server()
        with ThreadPoolExecutor(len(self.devices)) as pool:
            deque(pool.map(self.start_node, range(1, len(self.devices) + 1)), maxlen=0)

    def fault(self, number: int, what: str) -> None:
        (self.devices[number - 1] / "fault.txt").write_text(what)

    def prepare(self, **settings: Any) -> None:
        FederationFolder.create(self.folder, self.bundle, _settings(settings))

    def run(self, connections: int | None = None) -> None:
        rounds.run(self.folder, lambda entry: None, nodes=connections or len(self.nodes))

    @property
    def history(self) -> list[dict[str, Any]]:
        return FederationFolder(self.folder).lines("history.jsonl")

    @property
    def events(self) -> list[dict[str, Any]]:
        return FederationFolder(self.folder).lines("events.jsonl")

    def reasons(self, number: int) -> set[str]:
        """Why a node's answers were not taken."""
        who = self.nodes[number].node_id
        return {e["reason"] for e in self.events if e["event"] == "rejected" and e["node"] == who}

    def difference_from_simulation(self, rounds: int, private: PrivateRounds | None = None) -> float:
        """The largest of all differences in the server's and the users' state."""
        coordinator = Coordinator(FederationFolder.open(self.folder))
        owners: dict[int, tuple[Device, str]] = {}
        ids = {int(node.node_id): number for number, node in self.nodes.items()}
        for node, entry in coordinator.progress.ledger.nodes.items():
            device = Device.open(self.devices[ids[node] - 1])
            self.stack.callback(device.close)
            slots = Members(device).slots()
            owners |= {number: (device, slots[slot]) for slot, number in entry.numbers.items()}
        known = Ragged.from_lists([self.histories[owners[n][1]].tolist() for n in sorted(owners)])
        assert isinstance(coordinator.method, Method)
        simulation = Simulation(
            coordinator.method,
            ClientData(known, known.sorted_unique(), self.data.n_items),
            BlockTraining(2),
            seed=SEED,
            device=torch.device("cpu"),
            dtype=torch.float64,
            protection=Chain((private,) if private else ()),
        )
        for round_ in range(rounds):
            simulation.run_round(round_)
        largest = max(
            float((value - coordinator.state.shared[name]).abs().max())
            for name, value in simulation.state.tensors()[0].items()
        )
        for number, (device, user) in owners.items():
            mine = device.personal(user)
            for name, value in simulation.state.personal.of_client(number).items():
                start = simulation.state.personal.initial.get(name)  # of those who were never asked
                here = mine[name] if start is None else mine.get(name, start.numpy())
                largest = max(largest, float(np.abs(here - value.numpy()).max()))
        return largest


def _settings(given: dict[str, Any]) -> Any:
    from solera.federation.common.settings import Settings

    few = {"least_nodes": 2, "least_users": 1, "sums_without_noise": OPEN.sums_without_noise}
    return Settings(**{"over_selection": 1.0, "patience": 90, "deadline": 120, **few, **given})


def people() -> Interactions:
    return load("ml-100k", data_dir=Path(os.environ["SOLERA_DATA"]))
