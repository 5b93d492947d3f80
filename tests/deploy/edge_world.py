"""A federation whose server runs its real loop, with nodes and edges in the same process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from federation import Local
from solera.deploy.common.envelopes import member_number
from solera.deploy.common.flower import home_of
from solera.deploy.common.known_keys import KnownKeys, public_key_of
from solera.deploy.common.messages import KINDS, from_content, to_content
from solera.deploy.common.private_files import private_folder
from solera.deploy.common.protocol import Packet, RefusalError
from solera.deploy.node.behind_edge import BehindEdge
from solera.deploy.node.masked_round import open_node
from solera.deploy.operate.edge_serving import Edge
from solera.deploy.operate.relaying import Relaying
from solera.deploy.operate.serving import reply_to
from solera.deploy.server.app import Loop

EDGE = 7  # number of the first edge's connection


class Household:
    """Members of one edge, who answer at once, as far as their answers are not lost."""

    def __init__(self, world: World, members: list[int]) -> None:
        self._world, self.members = world, members
        self.orders: list[tuple[int, str, Packet]] = []
        self.forge: Callable[[int, str, Packet], Packet] = lambda member, kind, packet: packet
        self.drops: Callable[[int, str], bool] = lambda member, kind: False
        self.refused: list[str] = []

    def here(self) -> list[int]:
        return self.members

    def carry(self, relaying: Relaying | None) -> None:
        for member, order in dict(relaying.orders).items() if relaying else ():
            kind = relaying.relay.kind
            self.orders.append((member, kind, order))
            if self.drops(member, kind):
                relaying.gone(member)
                continue
            try:
                reply = self._world.behind[member].answer(
                    partial(self._world.answer, member),
                    kind,
                    from_content(to_content(self.forge(member, kind, order))),
                )
            except RefusalError as error:
                self.refused.append(error.message)
                relaying.gone(member)
                continue
            assert reply is not None
            relaying.take(member, from_content(to_content(reply)))


class World(Grid):
    """Flower's network: connections of nodes and of edges. Nodes have the numbers of their keys."""

    def __init__(self, local: Local, keys: Path, edges: list[int]) -> None:
        """`edges` are numbers of nodes, in order, behind each edge; the rest is connected directly."""
        self.local = local
        names = [keys / "nodes" / f"node-{place}" for place in range(1, len(local.devices) + 1)]
        public = [path.with_suffix(".pub") for path in names]
        numbers = [member_number(public_key_of(path)) for path in public]
        local.devices = dict(zip(numbers, local.devices.values(), strict=True))
        home = private_folder(home_of(local.server.path))
        KnownKeys.change(home, lambda known: known.with_nodes(public), keys)
        self.behind = {
            number: BehindEdge(path, keys / "ca.pem", local.devices[number].path)
            for number, path in zip(numbers, names, strict=True)
        }
        rest, self.edges = list(numbers), dict[int, Household]()
        for place, count in enumerate(edges):
            self.edges[EDGE + place] = Household(self, rest[:count])
            rest = rest[count:]
        self.flat = set(rest)
        self.tamper: Callable[[int, str, Packet], Packet] = lambda edge, kind, packet: packet
        self.messages: list[tuple[int, str]] = []
        self._replies: dict[str, Message] = {}

    def answer(self, node: int, kind: str, packet: Packet) -> Packet:
        return open_node(self.local.devices[node], threads=1).answer(kind, packet)

    def enrol_all(self) -> None:
        """Enrol all nodes in one order, however they are connected: users then draw by the same numbers."""
        coordinator = self.local.coordinator
        for node, packet in coordinator.invite(self.local.devices).items():
            coordinator.enrol(node, self.answer(node, "enrol", packet))

    def train(self, monkeypatch: Any, rounds: int | None = None) -> None:
        monkeypatch.setattr("solera.deploy.server.app._SOON", 0.0)
        for name in ("_run_id", "_node_id", "_task_id"):  # which Flower sets for its apps
            monkeypatch.setattr(TaskIdentity, name, 1)
        loop = Loop(self, self.local.coordinator)
        if rounds is None:
            loop.run()
        else:
            loop.rounds(rounds)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        sent = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = name = f"{len(self.messages)}"
            node, kind = message.metadata.dst_node_id, KINDS[message.metadata.message_type]
            if node not in self.get_node_ids():  # as the SuperLink has it
                sent.append("")
                continue
            self.messages.append((node, kind))
            edge = self.edges.get(node)
            answers = Edge(edge).answer if edge else partial(self.answer, node)
            reply = reply_to(message, answers)
            changed = self.tamper(node, kind, from_content(reply.content))
            self._replies[name] = Message(to_content(changed), reply_to=message)
            sent.append(name)
        return sent

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        return [self._replies.pop(name) for name in message_ids if name in self._replies]

    def get_node_ids(self) -> set[int]:
        return self.flat | set(self.edges)

    def set_run(self, run: Any) -> None: ...

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *args: Any, **more: Any) -> Message:
        raise NotImplementedError

    def send_and_receive(self, *args: Any, **more: Any) -> list[Message]:
        raise NotImplementedError
