"""Server and nodes in one process: what they say is handed over, and kept for tests to look at."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from solera.core.method import Method
from solera.data.ragged import Ragged
from solera.data.sampling import ClientData
from solera.device.bundle import Bundle, Item
from solera.device.device import Device
from solera.device.ledger import Ledger
from solera.device.policy import Policy
from solera.device.publish import start
from solera.engine import BlockTraining, Simulation
from solera.federation.common.authority import ROSTER_PUBLIC
from solera.federation.common.packets import from_bytes, to_bytes
from solera.federation.common.protocol import Packet, Reason, RefusalError
from solera.federation.common.settings import Settings
from solera.federation.node.masked_round import open_node
from solera.federation.node.membership import Membership
from solera.federation.node.node import Node
from solera.federation.secure.roster import Roster, make_roster, read_roster_key
from solera.federation.server.coordinator import Coordinator
from solera.federation.server.folder import FederationFolder
from solera.federation.server.masked_round import finish_opening, run_masked

ITEMS = 24
FIVE = (3, 2, 2, 2, 2)  # users, where uploads are masked
FEW = Policy(least_nodes=3, least_users=3, sums_without_noise=100, allow_plain=False)


def fill(device: Device, users: dict[str, list[str]]) -> None:
    for user, items in users.items():
        device.add_all([(item, time) for time, item in enumerate(items)], user, "test")


class Local:
    """Three nodes, numbered 100, 101, 102, with users u0, u1, …"""

    def __init__(
        self,
        folder: Path,
        *,
        key: Path,
        catalogue: list[Item],
        histories: list[list[int]],
        method: str,
        options: dict[str, Any],
        precision: Any,
        sizes: tuple[int, ...],
        settings: dict[str, Any],
        node_keys: Path | None = None,
    ) -> None:
        self.folder, self.key, self.histories = folder, key, histories
        self.bundle = start(
            method, catalogue, folder / "start.bundle", key, options=options, precision=precision, seed=4
        )
        self.devices: dict[int, Device] = {}
        first = 0
        for number, size in enumerate(sizes):
            users = {f"u{u}": [str(i) for i in histories[u]] for u in range(first, first + size)}
            self.add_node(100 + number, users)
            first += size
        few = {"least_nodes": 3, "least_users": 3, "sums_without_noise": 100} if node_keys is not None else {}
        settings = {"rounds": 3, "min_nodes": 1, **few, **settings}
        if node_keys is not None:
            self.pin(node_keys)
        self.server = FederationFolder.create(folder / "server", self.bundle, Settings(**settings))
        self.coordinator = Coordinator(self.server)
        self.sent: list[tuple[int, str, Packet, Packet]] = []  # node, kind, what it got, what it gave
        self.tamper: Callable[[int, str, Packet], Packet | None] = lambda node, kind, packet: packet
        self.forge: Callable[[int, str, Packet], Packet] = lambda node, kind, packet: packet

    def add_node(self, number: int, users: dict[str, list[str]], bundle: Bundle | None = None) -> Device:
        device = Device.create(self.folder / f"node{number}", bundle or self.bundle)
        fill(device, users)
        Ledger(device.store).join_next()
        self.devices[number] = device
        return device

    def pin(self, keys: Path) -> None:
        """All nodes have the signed list of nodes, those who are here, and so has the server."""
        roster = make_roster(keys)
        (self.folder / "server").mkdir()
        FederationFolder(self.folder / "server").keep_roster(roster)
        for place, device in enumerate(self.devices.values(), start=1):
            self.membership(keys, place, roster).write(device.store)
            FEW.write(device.store)

    def membership(self, keys: Path, place: int, roster: Roster) -> Membership:
        signer = base64.b64encode(read_roster_key(keys / ROSTER_PUBLIC)).decode()
        return Membership(key=keys / "nodes" / f"node-{place}", roster_key=signer, roster=roster)

    def close(self) -> None:
        for device in self.devices.values():
            device.close()

    def restart_server(self) -> None:
        """As after a kill: nothing but the folder is left."""
        self.coordinator = Coordinator(FederationFolder.open(self.server.path))

    def ask(self, node: int, kind: str, packet: Packet) -> Packet | None:
        """What a node answers, in bytes and back, after whoever tampers with it."""
        received = from_bytes(to_bytes(self.forge(node, kind, packet)))
        answer = from_bytes(to_bytes(open_node(self.devices[node], threads=1).answer(kind, received)))
        self.sent.append((node, kind, packet, answer))
        return self.tamper(node, kind, answer)

    def exchange(self, kind: str, packets: dict[int, Packet], take: Callable[[int, Packet], None]) -> None:
        for node, packet in packets.items():
            answer = self.ask(node, kind, packet)
            if answer is None:
                continue
            try:
                take(node, answer)
            except RefusalError as error:
                self.coordinator.reject(node, error.reason, error.message)

    def round(self, online: set[int] | None = None, attempt: int = 0) -> dict[str, Any] | None:
        online = set(self.devices) if online is None else online
        self.exchange("enrol", self.coordinator.invite(online), self.coordinator.enrol)
        if self.coordinator.pending is not None:
            return finish_opening(self.coordinator, self.coordinator.pending, self.exchange)
        if self.coordinator.settings.secure_aggregation:
            return run_masked(self.coordinator, attempt, online, self.exchange)
        self.exchange("train", self.coordinator.begin(attempt, online), self.coordinator.take)
        return self.coordinator.close()

    def finish(self) -> None:
        def nothing(node: int, packet: Packet) -> None: ...

        self.exchange("finish", self.coordinator.farewells(set(self.devices)), nothing)

    def run(self, rounds: int = 3) -> None:
        for _ in range(rounds):
            assert self.round() is not None
        self.finish()

    def user_of(self) -> dict[int, tuple[int, str]]:
        """Who has which number."""
        return {
            number: (node, Node(self.devices[node]).members.slots()[slot])
            for node, entry in self.coordinator.progress.ledger.nodes.items()
            for slot, number in entry.numbers.items()
        }

    def rejected(self) -> list[Reason]:
        return [
            Reason(line["reason"])
            for line in self.server.lines("events.jsonl")
            if line["event"] == "rejected"
        ]

    def simulated(self, rounds: int = 3) -> Simulation:
        """The block engine with the same clients, under the same numbers."""
        owners = self.user_of()
        known = Ragged.from_lists([self.histories[int(owners[number][1][1:])] for number in sorted(owners)])
        method = self.coordinator.method
        assert isinstance(method, Method)
        simulation = Simulation(
            method,
            ClientData(known, known.sorted_unique(), ITEMS),
            BlockTraining(1),
            seed=4,
            device=torch.device("cpu"),
            dtype=self.coordinator.state.dtype,
        )
        for round_ in range(rounds):
            simulation.run_round(round_)
        return simulation

    def differences(self, simulation: Simulation) -> dict[str, float]:
        """The largest difference of every shared and personal leaf from a simulation's."""
        found = {
            f"shared/{name}": float((value - self.coordinator.state.shared[name]).abs().max())
            for name, value in simulation.state.tensors()[0].items()
        }
        for number, (node, user) in self.user_of().items():
            mine = self.devices[node].personal(user)
            for name, value in simulation.state.personal.of_client(number).items():
                start = simulation.state.personal.initial.get(name)  # of those who were never asked
                here = mine[name] if start is None else mine.get(name, start.numpy())
                largest = float(np.abs(here - value.numpy()).max()) if value.numel() else 0.0
                found[f"personal/{name}"] = max(found.get(f"personal/{name}", 0.0), largest)
        return found
