"""What it costs when nodes drop out of rounds."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest
import torch

from solera.core.method import Method
from solera.data.datasets import load
from solera.data.interactions import Split, history
from solera.data.sampling import ClientData
from solera.device.device import Device
from solera.device.publish import catalogue_of, start
from solera.engine import BlockTraining, Simulation
from solera.evaluate import Evaluator, split
from solera.federation.common.protocol import Packet
from solera.federation.common.settings import Settings
from solera.federation.node.members import Members
from solera.federation.node.node import Node
from solera.federation.server.coordinator import Coordinator
from solera.federation.server.folder import FederationFolder

NODES = "nodes"

pytestmark = pytest.mark.skipif("SOLERA_DATA" not in os.environ, reason="needs the data sets")


@pytest.fixture(scope="module")
def parts() -> Split:
    return split(load("ml-100k"), "strict")


def prepare(folder: Path, key: Path, parts: Split, *, method: str, nodes: int, **settings) -> None:
    """A federation whose nodes have the training items of some users each."""
    folder.mkdir()
    data, users = parts.data, parts.data.n_users
    bundle = start(method, catalogue_of(data), folder / "start.bundle", key, precision="double")
    FederationFolder.create(
        folder, bundle, Settings(over_selection=1.0, min_nodes=nodes, users_per_node=1000, **settings)
    )
    (folder / NODES).mkdir()
    for node, mine in enumerate(np.array_split(np.arange(users), nodes)):
        device = Device.create(folder / NODES / str(node), bundle)
        for user in mine:
            items = [(data.item_map.id(int(item)), time) for time, item in enumerate(parts.train.row(user))]
            device.add_all(items, str(user), "test")
        device.close()


def trained(folder: Path, parts: Split) -> Simulation:
    """The federation's state, the users in their own order."""
    coordinator = Coordinator(FederationFolder.open(folder))
    assert isinstance(coordinator.method, Method)
    simulation = Simulation(
        coordinator.method,
        ClientData(parts.train, parts.excluded, parts.data.n_items),
        BlockTraining(1),
        seed=coordinator.seed,
        device=torch.device("cpu"),
        dtype=coordinator.state.dtype,
    )
    simulation.restore(coordinator.state.shared, simulation.state.personal.tensors())
    for node in (folder / NODES).iterdir():
        device = Device.open(node)
        for user in Members(device).slots().values():
            held = {name: torch.from_numpy(v.copy()) for name, v in device.personal(user).items()}
            simulation.state.personal.take_client(int(user), held)
        device.close()
    return simulation


def run(folder: Path, share: float) -> None:
    """All rounds; so large a share of the nodes is away after it was asked."""
    coordinator = Coordinator(FederationFolder.open(folder))
    with ExitStack() as stack:
        nodes = {
            int(path.name): Node(stack.enter_context(closing(Device.open(path))), threads=1)
            for path in (folder / NODES).iterdir()
        }

        def exchange(kind: str, packets: dict[int, Packet], take: Callable[[int, Packet], None]) -> None:
            for node, packet in packets.items():
                draw = random.Random(f"{coordinator.progress.rounds_done} {node}")
                if kind != "train" or draw.random() >= share:
                    take(node, nodes[node].answer(kind, packet))

        while coordinator.progress.rounds_done < coordinator.rounds:
            exchange("enrol", coordinator.invite(nodes.keys()), coordinator.enrol)
            exchange("train", coordinator.begin(0, set(nodes)), coordinator.take)
            assert coordinator.close() is not None
        exchange("finish", coordinator.farewells(set(nodes)), lambda node, packet: None)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedhist", "pfedrec"])
def test_a_tenth_of_the_nodes_dropping_out_of_every_round(tmp_path, key, parts, method):
    """20 rounds, 10 nodes, all users: the validation figure stays where it is without."""
    figures = {}
    for name, share in (("all", 0.0), ("dropping", 0.1)):
        folder = tmp_path / name
        prepare(folder, key, parts, method=method, nodes=10, rounds=20, min_replies=0.5)

        run(folder, share)
        rounds = FederationFolder(folder).lines("history.jsonl")
        lost = sum(entry["rejected"].get("no-reply", 0) for entry in rounds)
        assert len(rounds) == 20
        assert lost == 0 if share == 0 else 10 <= lost <= 40
        scored = Evaluator(parts, 0).validation(trained(folder, parts).serve(history(parts, "validation")))
        figures[name] = scored.full["ndcg@10"]
        print(f"{method}, {name}: {lost} of 200 answers lost, validation NDCG@10 {figures[name]:.4f}")
    assert figures["all"] > 0.03
    assert abs(figures["all"] - figures["dropping"]) < 0.01
