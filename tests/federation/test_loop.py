"""How long rounds wait for nodes, over a network that is played: who hangs holds up nobody."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from one_process import Local
from solera.core.errors import RunError
from solera.federation.common.protocol import Packet, Reason, RefusalError
from solera.federation.server.loop import Loop
from solera.federation.server.network import Answered

SMALL = {"embedding_size": 4}
NEVER = float("inf")


@dataclass
class Played:
    """A network in this process: each answer comes so many seconds after it was asked for."""

    federation: Local
    delays: dict[tuple[int, str], float] = field(default_factory=dict)  # of a node's answers of a kind
    away: set[int] = field(default_factory=set)
    repeats: bool = False  # whether every answer comes twice
    unread: set[int] = field(default_factory=set)  # whose answers cannot be read
    _coming: list[tuple[float, Answered]] = field(default_factory=list)
    _names = itertools.count()

    def online(self) -> set[int]:
        return set(self.federation.devices) - self.away

    def send(self, kind: str, packets: Mapping[int, Packet], seconds: float, round_: str) -> dict[str, int]:
        names = {}
        for node, packet in packets.items():
            names[name := str(next(self._names))] = node
            answer: Packet | RefusalError | None = self.federation.ask(node, kind, packet)
            if node in self.unread:
                answer = RefusalError(Reason.MALFORMED, "cannot be read")
            due = time.monotonic() + self.delays.get((node, kind), 0.0)
            assert answer is not None
            came = Answered(name, answer, 100)
            self._coming += [(due, came)] * (2 if self.repeats else 1)
        return names

    def answers(self) -> list[Answered]:
        now = time.monotonic()
        here = [came for due, came in self._coming if due <= now]
        self._coming = [(due, came) for due, came in self._coming if due > now]
        return here


@pytest.fixture
def played(local):
    def make(**settings) -> Played:
        usual = {"rounds": 2, "deadline": 20, "patience": 1, "straggler_wait": 0.3, "min_replies": 0.3}
        return Played(local("fedmf", SMALL, **usual | settings))

    return make


def clients(network: Played) -> list[int]:
    return [line["clients"] for line in network.federation.server.lines("history.jsonl")]


def test_all_rounds_by_a_network_as_without(played, local):
    network = played(over_selection=1.0)
    Loop(network, network.federation.coordinator).run()
    assert clients(network) == [11, 11]
    assert max(network.federation.differences(network.federation.simulated(2)).values()) < 1e-9


def test_a_node_that_hangs_is_waited_for_a_while_alone(played):
    """The control: with more patience, the round has everybody."""
    network = played()
    network.delays = {(102, "train"): 3.0}
    began = time.monotonic()
    Loop(network, network.federation.coordinator).run()
    assert time.monotonic() - began < 3.0
    assert clients(network)[0] == 9
    patient = played(straggler_wait=10.0)
    patient.delays = {(102, "train"): 1.0}
    Loop(patient, patient.federation.coordinator).run()
    assert clients(patient) == [11, 11]
    assert patient.federation.rejected() == []


def test_an_answer_that_comes_after_its_round_is_not_counted(played):
    network = played(rounds=3)
    network.delays = {(102, "train"): 0.9, (101, "train"): 0.3}
    Loop(network, network.federation.coordinator).run()
    assert Reason.LATE in network.federation.rejected()
    assert clients(network)[0] == 9


def test_an_enrolment_that_comes_late_counts_for_the_next_round(played):
    network = played(rounds=3, straggler_wait=1.0)
    network.delays = {(102, "enrol"): 0.8, (101, "train"): 0.45}
    Loop(network, network.federation.coordinator).run()
    assert clients(network)[0] == 9
    assert clients(network)[-1] == 11
    enrolled = [node for node, kind, *_ in network.federation.sent if kind == "enrol"]
    assert enrolled.count(102) == 1


def test_answers_that_come_twice_or_cannot_be_read(played):
    network = played()
    network.repeats, network.unread = True, {102}
    Loop(network, network.federation.coordinator).run()
    assert clients(network) == [9, 9]
    assert set(network.federation.rejected()) == {Reason.MALFORMED}


def test_too_few_nodes_and_too_few_answers_end_a_run(played):
    network = played(min_nodes=3)
    network.away = {100}
    with pytest.raises(RunError, match="only 2 of 3 nodes are online"):
        Loop(network, network.federation.coordinator).run()
    network = played(deadline=1, min_replies=0.9, attempts=2)
    network.delays = {(100, "train"): NEVER}
    with pytest.raises(RunError, match="failed 2 times because of too few replies"):
        Loop(network, network.federation.coordinator).run()
    assert clients(network) == []
