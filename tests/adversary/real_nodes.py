"""A federation of small devices for real processes: keys, roster, bundle and folders."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from commands import solera
from solera.device.bundle import Item
from solera.device.device import Device
from solera.device.ledger import Ledger
from solera.device.policy import Policy
from solera.device.publish import start
from solera.federation.common.address import Address
from solera.federation.common.authority import make_keys
from solera.federation.common.settings import Settings
from solera.federation.node.membership import pin
from solera.federation.node.worker import WORKER_APP
from solera.federation.operate import node_process, serve, server
from solera.federation.operate.processes import free_port
from solera.federation.secure.roster import read_roster, read_roster_key
from solera.federation.server.folder import FederationFolder

USERS, ITEMS = 3, 24  # users of a node
LEAST = 3  # nodes and users of a sum
SUMS = 100  # that a device helps to open without noise


class RealNodes:
    """Its folders are in `root`: films of the server, home-1, home-2, … of the nodes."""

    def __init__(self, root: Path, publisher_key: Path, nodes: int, seed: int = 7) -> None:
        self.root, self.folder, self.keys = root, root / "films", root / "keys"
        self.draw = random.Random(seed)
        make_keys(self.keys, nodes)
        made = solera("federation", "roster", self.keys)
        assert made.returncode == 0, made.stderr
        items = [Item(str(number), f"Film {number}", None) for number in range(ITEMS)]
        options = {"embedding_size": 4}
        self.bundle = start("fedmf", items, root / "films.bundle", publisher_key, options=options)
        self.homes = [root / f"home-{number}" for number in range(1, nodes + 1)]
        for home in self.homes:
            self._fill(home)
        self.address = Address("127.0.0.1", free_port(), self.keys / "ca.pem")

    def _fill(self, home: Path) -> None:
        device = Device.create(home, self.bundle)
        for user in range(USERS):
            seen = self.draw.sample(range(ITEMS), 6)
            device.add_all([(str(item), time) for time, item in enumerate(seen)], f"u{user}", "test")
        Ledger(device.store).join_next()
        Policy(least_nodes=LEAST, least_users=LEAST, rounds_per_day=1_000_000, sums_without_noise=SUMS).write(
            device.store
        )
        device.close()

    def key_of(self, home: Path) -> Path:
        return self.keys / "nodes" / home.name.replace("home", "node")

    def begin(self, **settings: Any) -> FederationFolder:
        """Decide what the federation is; its rounds are masked."""
        usual = {"secure_aggregation": True, "threshold": 0.6, "over_selection": 1.0, "min_nodes": LEAST}
        few = {"least_nodes": LEAST, "least_users": LEAST, "sums_without_noise": SUMS}
        folder = FederationFolder.create(
            self.folder, self.bundle, Settings.model_validate(usual | few | settings)
        )
        signer = read_roster_key(self.keys / "roster.pub")
        folder.keep_roster(read_roster(self.keys / "roster.json", signer))
        return folder

    @contextmanager
    def running(self, app: str = WORKER_APP) -> Iterator[None]:
        """The server and all nodes, whose answers are an app's."""
        with ExitStack() as stack:
            stack.enter_context(server.running(self.folder, self.address, self.keys))

            def begin(home: Path) -> None:
                assert pin(home, self.key_of(home), self.address.ca, None)
                stack.enter_context(node_process.running(home, self.address, self.key_of(home), app))

            with ThreadPoolExecutor(len(self.homes)) as pool:
                list(pool.map(begin, self.homes))
            yield

    def run(self) -> None:
        """All rounds that are left."""
        serve.run(self.folder, lambda entry: None, nodes=len(self.homes))

    def lines(self, name: str) -> list[dict[str, Any]]:
        return FederationFolder(self.folder).lines(name)
