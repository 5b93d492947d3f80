"""Federations under differential privacy, with noise of nothing and coins that can be tossed again."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from one_process import ITEMS, Local
from solera.core.method import Method
from solera.core.protection import Chain
from solera.data.ragged import Ragged
from solera.data.sampling import ClientData
from solera.dp.noise import Noise, Seeded
from solera.dp.rounds import PrivateRounds
from solera.dp.settings import DP
from solera.engine import BlockTraining, Simulation
from solera.federation.common.protocol import Packet
from solera.federation.server.coordinator import Coordinator

SMALL = {"embedding_size": 4}
SHORT = 0.05  # a clip that bites: fedmf's users change more than that
CPU = torch.device("cpu")


class Silence:
    def cover(self, sums: torch.Tensor, std: float, clip: float) -> torch.Tensor:
        return sums

    def cover_symmetric(self, matrix: torch.Tensor, std: float, clip: float) -> None:
        pass


@dataclass
class Silent:
    """Coins that can be tossed again, and noise of nothing; tells how often noise was asked for."""

    asked: int = 0

    def noise(self, round_: int) -> Noise:
        self.asked += 1
        return Silence()

    def coins(self, count: int, round_: int) -> np.ndarray:
        return Seeded(4).coins(count, round_)


def dp(**given) -> DP:
    return DP.model_validate({"noise": 2.0, "delta": 1e-5, "clip": SHORT} | given)


def silenced(federation: Local) -> Silent:
    silent = Silent()
    federation.coordinator = Coordinator(federation.server, silent)
    return silent


def uploads(federation: Local) -> list[tuple[Packet, Packet]]:
    return [(order, answer) for _, kind, order, answer in federation.sent if kind == "train"]


def length(packet: Packet) -> float:
    changes = [v for name, v in packet.arrays.items() if name.startswith(("change/", "sum/"))]
    return math.sqrt(sum(float(np.square(each).sum()) for each in changes))


def simulated(federation: Local, rate: float, clip: float, rounds: int = 3) -> Simulation:
    """The simulator with the same clients, coins and clip, and as little noise."""
    owners = federation.user_of()
    known = Ragged.from_lists([federation.histories[int(owners[number][1][1:])] for number in sorted(owners)])
    method = federation.coordinator.method
    assert isinstance(method, Method)
    simulation = Simulation(
        method,
        ClientData(known, known.sorted_unique(), ITEMS),
        BlockTraining(1),
        seed=4,
        device=CPU,
        dtype=torch.float64,
        protection=Chain((PrivateRounds(dp(clip=clip), rate, len(owners), Silent()),)),
    )
    for round_ in range(rounds):
        simulation.run_round(round_)
    return simulation
