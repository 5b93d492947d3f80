"""A node's half of a masked round: five messages, each answered once and in order.

    advertise   the server's setup, if it is to this node's liking; keys for this round alone
    share       shares of the own secrets, sealed for every other node
    mask        train, and send the sum over the own users under masks
    confirm     sign whose vectors are summed up
    unmask      shares by which the masks on the sum, and on nothing else, can be taken off

What the server asks for is checked against what is pinned here: members the authority has signed, enough of
them, the encoding that the bundle's method implies, and a state to train from that is the same for all. The
secrets of a round are in the device's database between messages, so a node that is killed goes on where it
was, or not at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from solera.core.fixed_point import FixedPoint
from solera.deploy.masked import encoding_of, values_of
from solera.deploy.membership import Membership
from solera.deploy.node import Node, noted
from solera.deploy.protocol import (
    MESSAGE,
    MaskedAnswer,
    Order,
    Packet,
    Proposal,
    Reason,
    RefusalError,
    Step,
    session_of,
)
from solera.deploy.secure_state import SecureState
from solera.deploy.shares import LEAST_NOISE, RANGE, with_share
from solera.deploy.uploads import Shape, check_arrays
from solera.device.device import Device
from solera.privacy.dp.noise import Noise, SystemNoise
from solera.privacy.secagg import Client, Setup, Stage

MASKED = "masked"  # the step, in the outbox


def open_node(device: Device, threads: int = 0) -> Node:
    """The node of a device; with masks, if the device has a membership pinned."""
    node, membership = Node(device, threads), Membership.read(device.path)
    if membership is not None:
        Masking(node, membership)
    return node


class Masking:
    """Gives a node the stages of masked rounds, and, unless it is allowed, takes plain ones from it."""

    def __init__(self, node: Node, membership: Membership) -> None:
        self._node, self._membership = node, membership
        self._members, self._state = node.members, SecureState(node.device.store)
        node.identity = membership.public_text
        self.noise: Noise = SystemNoise()  # of which a share is added, where the server asks for it
        self._finish = node.finish
        node.kinds |= {
            "advertise": self.advertise,
            "share": lambda packet: self._step(packet, Client.share_keys),
            "mask": self.mask,
            "confirm": lambda packet: self._step(packet, Client.confirm),
            "unmask": lambda packet: self._step(packet, Client.unmask),
            "finish": self.finish,
        }
        if not membership.allow_plain:
            node.kinds["train"] = _no_plain_round

    def advertise(self, packet: Packet) -> Packet:
        """Look at what the server proposes; begin, if it will do."""
        proposal = Proposal.of(packet)
        setup = self._approved(proposal, _message(packet))
        client = Client(setup, setup.roster.index(self._membership.public), self._membership.identity)
        reply = _reply(proposal, client.advertise())
        with self._node.device.store.writing():
            self._state.begin(setup.context, proposal, client.save())
            self._members.record(reply, (MASKED,))
        self._state.wipe()
        return reply

    def mask(self, packet: Packet) -> Packet:
        """Train the users that were asked for; what they have to send leaves under masks, in one sum."""
        asked, node = Order.of(packet), self._node
        step = Step(federation=asked.federation, round=asked.round or 0, attempt=asked.attempt)
        proposal, client = self._client(step)
        if client.stage is not Stage.MASK:
            raise RefusalError(
                Reason.SECURE, f"asked for a masked sum when it is time to {client.stage.name}"
            )
        inbox = _message(Packet({}, {n: v for n, v in packet.arrays.items() if n == MESSAGE}))
        packet = Packet(packet.fields, {n: v for n, v in packet.arrays.items() if n != MESSAGE})
        if client.setup.session != session_of(proposal.nonce, packet.arrays):
            raise RefusalError(Reason.SECURE, "a state that the members have not agreed on")
        order = node.order(packet)
        here = self._members.slots()
        asked_here = len(here.keys() & set(order.slots))
        hidden = order.noise is not None and order.noise >= LEAST_NOISE
        least = 0 if hidden else self._membership.least_users
        if asked_here < least:  # a node that adds nothing hides nobody
            raise RefusalError(
                Reason.MEMBERS,
                f"{asked_here} users here were asked for; this node asks for {least}",
            )
        cohort = node.cohort(order, here)
        users = len(cohort.users)
        if users > proposal.capacity:
            raise RefusalError(Reason.MEMBERS, f"{users} users, where there is room for {proposal.capacity}")
        places = len(client.setup.roster)
        fixed = FixedPoint.of(node.method, node.n_items, places=places, users=proposal.capacity)
        total, pending = node.work(order, packet.arrays, cohort, fixed.clip)
        assert not isinstance(total, list)  # such methods have no encoding
        values = values_of(node.method, node.n_items, total, users)
        if order.clip and order.noise:
            std = order.clip * order.noise / math.sqrt(client.setup.threshold)
            if order.clip * proposal.capacity + RANGE * std > fixed.largest:
                raise RefusalError(Reason.SECURE, "the noise does not fit into what is masked")
            values = with_share(node.method, node.n_items, values, std, self.noise)
        message = client.mask(inbox, values)
        answer = MaskedAnswer(**step.model_dump(), version=node.version, slots=list(here))
        reply = Packet(answer.model_dump(), {MESSAGE: np.frombuffer(message, np.uint8)})
        shared = node.shared_by_owner(order, packet.arrays, here)
        with node.device.store.writing():
            self._state.put(step.token, client.save())
            steps = (*noted(order), node.method.wire.label, MASKED)
            self._members.stage(order.token, pending, shared, reply, steps)
        return reply

    def finish(self, packet: Packet) -> Packet:
        """Take the final state; no secret of a round stays."""
        reply = self._node.finish(packet)
        self._state.erase()
        self._state.wipe()
        return reply

    def _step(self, packet: Packet, work: Callable[[Client, bytes], bytes]) -> Packet:
        """The other stages: bytes in, bytes out, and the next state on disk before they leave."""
        step = Step.of(packet)
        _, client = self._client(step)
        reply = _reply(step, work(client, _message(packet)))
        done = client.stage is Stage.DONE
        with self._node.device.store.writing():
            if done:
                self._state.erase()
            else:
                self._state.put(step.token, client.save())
            self._members.record(reply, (MASKED,))
        if done:
            self._state.wipe()
        return reply

    def _client(self, step: Step) -> tuple[Proposal, Client]:
        self._same_federation(step)
        proposal, state = self._state.current(step.token)
        return proposal, Client.load(state, self._membership.identity)

    def _approved(self, proposal: Proposal, data: bytes) -> Setup:
        """The server's setup, if it is one that this node can be in."""
        self._same_federation(proposal)
        mine, node = self._membership, self._node
        setup = Setup.from_bytes(data, trusted=mine.roster.keys)
        if setup.round != proposal.round:
            raise RefusalError(Reason.ROUND, f"a setup of round {setup.round}")
        if mine.public not in setup.roster:
            raise RefusalError(Reason.MEMBERS, "a round without this node")
        if setup.threshold < mine.least_nodes:
            raise RefusalError(
                Reason.SECURE, f"a sum over {setup.threshold} nodes; this one asks for {mine.least_nodes}"
            )
        implied = encoding_of(
            node.method, node.n_items, members=len(setup.roster), capacity=proposal.capacity
        )
        if setup.encoding != implied:
            raise RefusalError(Reason.SECURE, "another encoding than the bundle's method implies")
        return setup

    def _same_federation(self, step: Step) -> None:
        if step.federation != self._members.federation:
            raise RefusalError(Reason.FEDERATION, "this node has not enrolled in that federation")


def _no_plain_round(packet: Packet) -> Packet:
    raise RefusalError(
        Reason.SECURE, "this node answers under secure aggregation alone: it was started with --roster"
    )


def _message(packet: Packet) -> bytes:
    wanted: Shape = ("b",)
    check_arrays({MESSAGE: (np.dtype("u1"), wanted)}, packet.arrays)
    return packet.arrays[MESSAGE].tobytes()


def _reply(step: Step, message: bytes) -> Packet:
    fields = Step(federation=step.federation, round=step.round, attempt=step.attempt).model_dump()
    return Packet(fields, {MESSAGE: np.frombuffer(message, np.uint8)})
