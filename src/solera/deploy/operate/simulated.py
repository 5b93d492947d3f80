"""The same apps in Flower's simulation engine: many nodes, each with a cohort of users, over Ray's workers.

A node's device is a folder like any other: FOLDER/nodes/0, FOLDER/nodes/1, … of the federation's folder.
"""

from __future__ import annotations

from pathlib import Path

from flwr.app import Context
from flwr.clientapp.typing import Mod
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from solera.deploy.node.app import make_app
from solera.deploy.server.app import run_federation
from solera.device.device import Device
from solera.device.ledger import Ledger
from solera.device.policy import Policy

NODES = "nodes"
MANY = 1_000_000_000


def simulate(path: Path, *, mods: list[Mod] | None = None, cpus_per_node: int = 1) -> None:
    """Run, or go on with, the federation in a folder; Ray decides how many nodes work at a time.

    Whoever simulates devices agrees for them, and bounds nothing.
    """
    nodes = path / NODES
    for each in nodes.iterdir():
        device = Device.open(each)
        Ledger(device.store).join_next()
        Policy(rounds_per_day=MANY).write(device.store)
        device.close()
    count = sum(1 for each in nodes.iterdir() if each.name.isdigit())
    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        run_federation(grid, path)

    def device_of(context: Context) -> Path:
        return nodes / str(context.node_config["partition-id"])

    run_simulation(
        server_app=server,
        client_app=make_app(mods, device_of),
        num_supernodes=count,
        backend_config={"client_resources": {"num_cpus": cpus_per_node, "num_gpus": 0.0}},
    )
