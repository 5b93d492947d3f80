"""Messages of masked rounds with something wrong in them, in a process of their own.

PYTHONPATH=tests python tests/fuzz/stages.py FOLDER COUNT

One round of each federation is recorded with all its messages. Then of COUNT messages, each one of these with
something wrong in it,

    5 in 100     are sent to a node that has come to that stage
    5 in 100     are replies to a server that has come to that stage
    2 in 1000    are on their way in whole rounds, in both directions, with all that follows from them
    the rest     are read as node or server read them, in both directions, and nothing is done with them

What refuses a message must be an error of Solera's; at the server, one that is counted and goes no further.
"""

from __future__ import annotations

import copy
import json
import logging
import random
import resource
import shutil
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from mutations import bytes_of, fuzz
from packets import received

from one_process import FIVE, ITEMS, Local
from solera.core.errors import SoleraError
from solera.device import keys as publisher
from solera.device.bundle import Item
from solera.device.device import Device
from solera.device.policy import Policy
from solera.dp.settings import DP
from solera.federation.common.authority import make_keys
from solera.federation.common.protocol import MESSAGE, Enrolment, Offer, Packet, RefusalError, Step
from solera.federation.common.uploads import check_arrays
from solera.federation.node.masked_round import open_node
from solera.federation.node.node import Node
from solera.federation.node.work import arrays_to_nodes
from solera.federation.secure.terms import RoundTerms, Task
from solera.federation.server.coordinator import Coordinator
from solera.federation.server.masked_round import STAGES, MaskedRound, Session
from solera.privacy.secagg import messages as secagg
from solera.privacy.secagg.rules import Parcel

NODE = 100  # to whom requests are sent
MANY = 1_000_000
MASKED = {
    "secure_aggregation": True,
    "threshold": 0.6,
    "over_selection": 1.0,
    "rounds": MANY,
    "sums_without_noise": MANY,
}
FEDERATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "sums": ("fedmf", {}),
    "noise": ("fedmf", {"dp": DP(noise=2.0, delta=1e-5, clip=0.05, mode="distributed"), "rounds": 10}),
    "one round": ("fedease", {}),
}
REQUESTS = {
    "share": secagg.Keys,
    "mask": secagg.Inbox,
    "confirm": secagg.Survivors,
    "unmask": secagg.Confirmations,
}
REPLIES = {
    "advertise": secagg.Advertisement,
    "share": secagg.SealedShares,
    "mask": secagg.MaskedInput,
    "confirm": secagg.Confirmation,
    "unmask": secagg.Reveal,
}


def peak() -> float:
    """Of this process so far, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def federation(folder: Path, name: str) -> Local:
    """Five nodes that mask."""
    method, settings = FEDERATIONS[name]
    draw = np.random.default_rng(3)
    made = Local(
        folder / name,
        key=folder / "publisher.key",
        catalogue=[Item(str(item), f"Film {item}", None) for item in range(ITEMS)],
        histories=[draw.choice(ITEMS, 4 + user % 6, replace=False).tolist() for user in range(sum(FIVE))],
        method=method,
        options={"embedding_size": 4} if method == "fedmf" else {},
        precision="double",
        sizes=FIVE,
        settings=MASKED | settings,
        node_keys=folder / "nodes",
    )
    for device in made.devices.values():
        device.store.connection.execute("PRAGMA synchronous = OFF")
        own: dict[str, Any] = {
            "least_nodes": 3,
            "least_users": 3,
            "allow_plain": False,
            "rounds_per_day": MANY,
            "sums_without_noise": MANY,
        }
        own |= {"epsilon": 1e9} if name == "noise" else {}
        Policy(**own).write(device.store)
    made.exchange("enrol", made.coordinator.invite(set(made.devices)), made.coordinator.enrol)
    return made


class Waiting:
    """A node that has come to a stage, and comes back to it whatever it has answered."""

    def __init__(self, folder: Path) -> None:
        self.device = Device.open(folder)
        self.device.store.connection.execute("PRAGMA synchronous = OFF")
        self._saved = sqlite3.connect(":memory:")
        self.device.store.connection.backup(self._saved)
        self.node: Node = open_node(self.device, threads=1)
        self._rounds = self._look()

    def answer(self, kind: str, packet: Packet) -> Packet:
        """What it says; a request that it declines moves no round on."""
        answer = self.node.answer(kind, packet)
        if "declined" in answer.fields:
            assert self._look() == self._rounds
        else:
            assert answer.arrays.keys() == {MESSAGE}
            self._saved.backup(self.device.store.connection)
            self.node = open_node(self.device, threads=1)
        return answer

    def _look(self) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.device.store.rows("SELECT context, stage, secrets FROM rounds")]


class Recorded:
    """One round of a federation, with node and server as they were before every stage."""

    def __init__(self, folder: Path, name: str) -> None:
        self.made = federation(folder, name)
        self.coordinator: Coordinator = self.made.coordinator
        self.requests: dict[str, dict[int, Packet]] = {}
        self.replies: dict[str, dict[int, Packet]] = {}
        self.nodes: dict[str, Waiting] = {}
        self.servers: dict[str, MaskedRound] = {}
        masked = MaskedRound.begin(self.coordinator, self.coordinator.plan(0, set(self.made.devices)))
        for kind in STAGES:
            if kind == "unmask":
                self.coordinator.open(masked.opening())
            self.servers[kind] = resumed(masked)
            place = folder / name / f"before {kind}"
            shutil.copytree(self.made.devices[NODE].path, place)
            self.nodes[kind] = Waiting(place)
            masked.exchange(kind, self.made.exchange)
            told = [each for each in self.made.sent if each[1] == kind]
            self.requests[kind] = {node: request for node, _, request, _ in told}
            self.replies[kind] = {node: reply for node, _, _, reply in told}
        setup = masked._sessions[0].server.setup
        self.context = setup.context
        self.terms = masked._terms


def resumed(masked: MaskedRound) -> MaskedRound:
    """A copy that goes on by itself."""
    made = copy.copy(masked)
    made._sessions, made._slots = [], dict(masked._slots)
    for session in masked._sessions:
        server = copy.copy(session.server)
        for name, value in vars(server).items():
            if isinstance(value, dict | np.ndarray):
                setattr(server, name, value.copy())
        made._sessions.append(Session(session.place, session.nodes, server, dict(session.next)))
    return made


class Fuzzed:
    """Who tries what, and how often it was taken and refused."""

    def __init__(self, folder: Path) -> None:
        publisher.make_keys(folder / "publisher")
        (folder / "nodes").mkdir()
        make_keys(folder / "nodes", len(FIVE))
        for name in FEDERATIONS:
            (folder / name).mkdir()
        self.recorded = [Recorded(folder, name) for name in FEDERATIONS]
        (folder / "rounds").mkdir()
        shutil.copy(folder / "publisher.key", folder / "rounds")
        shutil.copytree(folder / "nodes", folder / "rounds" / "nodes")
        (folder / "rounds" / "sums").mkdir()
        self.live = federation(folder / "rounds", "sums")
        self.taken: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()

    def count(self, what: str, work: Callable[[], object]) -> None:
        """Do it, and say how it went."""
        try:
            work()
        except SoleraError:
            self.refused[what] += 1
            raise
        self.taken[what] += 1

    def to_a_node(self, draw: random.Random) -> None:
        """A request of any stage, to a node that waits for it."""
        here, kind = draw.choice(self.recorded), draw.choice(STAGES)

        def ask() -> None:
            packet = received(draw, here.requests[kind][NODE])
            answer = here.nodes[kind].answer(kind, packet)
            if "declined" in answer.fields:
                raise SoleraError("declined")

        self.count(f"node {kind}", ask)

    def to_the_server(self, draw: random.Random) -> int:
        """Replies of any stage, some of them wrong; how many."""
        here, kind = draw.choice(self.recorded), draw.choice(STAGES)
        masked, replies = resumed(here.servers[kind]), here.replies[kind]
        wrong = draw.sample(sorted(replies), draw.choice((1, 2, 2, 5)))

        def exchange(kind: str, packets: dict[int, Packet], take: Callable[[int, Packet], None]) -> None:
            for node in packets:
                try:
                    take(node, received(draw, replies[node]) if node in wrong else replies[node])
                except RefusalError as error:
                    here.coordinator.reject(node, error.reason, error.message)

        try:
            self.count(f"server {kind}", lambda: masked.exchange(kind, exchange))
        except SoleraError:
            here.coordinator.round = here.servers[kind]._now
        return len(wrong)

    def in_a_round(self, draw: random.Random) -> int:
        """A whole round, with wrong messages in both directions; how many."""
        wrong = 0

        def odd(node: int, kind: str, packet: Packet) -> Packet:
            nonlocal wrong
            if kind == "enrol" or draw.random() > 0.04:
                return packet
            try:
                changed = received(draw, packet)
            except RefusalError:  # then nobody sees more of it than that
                return packet
            wrong += 1
            return changed

        live = self.live
        for entry in live.coordinator.progress.ledger.nodes.values():
            entry.faults = entry.out_until = 0
        live.sent.clear()
        live.forge, live.tamper = odd, odd
        with suppress(SoleraError):
            self.count("round", lambda: self._round(draw.randrange(2**31)))
        return wrong

    def _round(self, attempt: int) -> None:
        live = self.live
        if live.round(attempt=attempt) is None:
            if live.coordinator.pending is not None:
                live.coordinator.give_up_opening()
            for device in live.devices.values():  # they would decline a second sum too near to this one
                device.store.connection.execute("DELETE FROM rounds")
            raise SoleraError("did not count")

    def read(self, draw: random.Random) -> None:
        """Read a request or a reply, or the bytes in it alone."""
        here, kind, up = draw.choice(self.recorded), draw.choice((*STAGES, "enrol")), draw.random() < 0.5
        what = f"read {'reply' if up else 'request'} {kind}"
        if kind == "enrol":
            _, _, request, reply = here.made.sent[0]
            model = Enrolment if up else Offer
            self.count(what, lambda: model.of(received(draw, reply if up else request)))
            return
        good = (here.replies if up else here.requests)[kind][NODE]
        form = (REPLIES if up else REQUESTS).get(kind)
        if form is not None and draw.random() < 0.5:
            data = bytes_of(draw, good.arrays[MESSAGE].tobytes())
            self.count(what, lambda: self._parse(here, form, data))
            return

        def whole() -> None:
            packet = received(draw, good)
            if up:
                data = here.servers[kind]._message(kind, NODE, packet)
            elif kind == "advertise":
                check_arrays({}, packet.arrays)
                terms = RoundTerms.of(packet)
                assert terms.digest
                return
            else:
                node = here.nodes[kind].node
                (Task if kind == "mask" else Step).of(packet)
                wanted: dict[str, Any] = {MESSAGE: (np.dtype("u1"), ("b",))}
                if kind == "mask":
                    wanted |= arrays_to_nodes(node.method, node.n_items, np.dtype("<f8"), 0)
                check_arrays(wanted, packet.arrays)
                data = packet.arrays[MESSAGE].tobytes()
            assert form is not None
            self._parse(here, form, data)

        self.count(what, whole)

    @staticmethod
    def _parse(here: Recorded, form: type[secagg.Message], data: bytes) -> None:
        message = form.from_bytes(data, here.context)
        if isinstance(message, secagg.Inbox):
            for _, parcel in message.entries:
                Parcel.from_bytes(parcel)


def main(folder: Path, count: int) -> None:
    """Try so many; what was taken and refused, and megabytes at the most."""
    logging.disable(logging.WARNING)
    imported = peak()
    tried = Fuzzed(folder)
    ready = peak()
    seconds: dict[str, float] = {}
    shares = {"node": 0.05, "server": 0.05, "rounds": 0.002, "read": 0.898}
    work = {
        "node": tried.to_a_node,
        "server": tried.to_the_server,
        "rounds": tried.in_a_round,
        "read": tried.read,
    }
    messages: Counter[str] = Counter()
    for name, share in shares.items():

        def attempt(draw: random.Random, name: str = name) -> int:
            inputs = 1
            try:
                inputs = work[name](draw) or 1
            finally:
                messages[name] += inputs
            return inputs

        began = time.monotonic()
        fuzz(round(count * share), attempt)
        seconds[name] = round(time.monotonic() - began, 1)
    for here in tried.recorded:
        for waiting in here.nodes.values():
            assert waiting.device.status()["database"] == "ok"
    assert all(np.isfinite(values).all() for values in tried.live.coordinator.arrays().values())
    found = {what: [tried.taken[what], tried.refused[what]] for what in sorted(tried.taken | tried.refused)}
    print(
        json.dumps(
            {"found": found, "messages": messages, "seconds": seconds}
            | {"megabytes": {"imported": imported, "ready": ready, "peak": peak()}}
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
