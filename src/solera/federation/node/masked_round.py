"""A node's half of a masked round: five messages, each answered once and in order.

    advertise   the terms of the round, if they are acceptable; keys for this round alone
    share       shares of the own secrets, sealed for every other node
    mask        train, and send the sum over the own users under masks
    confirm     sign whose vectors are summed up
    unmask      shares by which the masks on the sum, and on nothing else, can be taken off

Everything that shapes the upload is in the terms (terms.py), which all members have agreed on; whether the
node takes part is decided by its bundle, its roster, its owner's policy and its ledger (approval.py). The
ledger is on the disk before an answer leaves, so a node that is killed goes on where it was, or not at all.
Only the answer to `unmask` is given again, the same bytes to the same request: a server that crashed can
finish the sum that it was opening, and open no other.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections.abc import Callable

import numpy as np

from solera.core.upload import PLAIN
from solera.device.device import Device
from solera.device.ledger import Entry, Stage
from solera.dp.discrete import discrete_gaussian
from solera.federation.common.protocol import MESSAGE, MaskedAnswer, Order, Packet, Reason, RefusalError, Step
from solera.federation.common.uploads import Shape, check_arrays
from solera.federation.node.approval import Approval
from solera.federation.node.evaluation import Evaluating
from solera.federation.node.membership import Membership
from solera.federation.node.node import Node
from solera.federation.secure.masked import values_of
from solera.federation.secure.shares import Draw, add_share
from solera.federation.secure.terms import RoundTerms, Task, state_digest
from solera.privacy.secagg import Client
from solera.privacy.secagg import Stage as ClientStage
from solera.privacy.secagg.primitives import Ring

_LOG = logging.getLogger(__name__)
MASKED = "masked"  # the step, in the outbox


def open_node(device: Device, threads: int = 0) -> Node:
    """The node of a device; with masks, if the device has a roster pinned."""
    node, membership = Node(device, threads), Membership.read(device.store)
    Evaluating(node)
    if membership is not None:
        Masking(node, membership)
    return node


class Masking:
    """Gives a node the stages of masked rounds."""

    def __init__(self, node: Node, membership: Membership) -> None:
        self._node, self._membership = node, membership
        self._members, self._ledger = node.members, node.ledger
        node.membership = membership
        self.draw: Draw = discrete_gaussian  # a share of the noise, where the terms say so
        node.kinds |= {
            "advertise": self.advertise,
            "share": self.share,
            "mask": self.mask,
            "confirm": self.confirm,
            "unmask": self.unmask,
            "finish": self.finish,
        }

    def advertise(self, packet: Packet) -> Packet:
        """Check the terms that the server proposes, and begin the round if they are acceptable."""
        terms, node = RoundTerms.of(packet), self._node
        _no_arrays(packet)
        node.check_joined(terms.federation, masked=True)
        approval = self._approval(terms)
        group = approval.group(node.device.bundle.manifest)
        approval.check(group)
        setup = terms.setup(group, node.method, node.n_items)
        keys = [member.key for member in terms.groups[group].members]
        client = Client(setup, keys.index(self._membership.public), self._membership.identity)
        reply = _reply(terms, client.advertise())
        entry = Entry(
            context=setup.context.hex(),
            federation=terms.federation,
            round=terms.round,
            attempt=terms.attempt,
            state=terms.state,
            cohort=approval.cohort(group),
            clip=terms.clip,
            noise=terms.noise,
            terms=terms.model_dump_json(),
            secrets=client.save(),
        )
        with node.device.store.writing():
            if not self._ledger.begin(entry):
                raise RefusalError(Reason.LEDGER, "this node has already taken part in this round")
            self._members.record(reply, (MASKED,), "advertise")
        self._wipe()
        return reply

    def share(self, packet: Packet) -> Packet:
        """Send shares of this node's secrets to the other nodes."""
        step, _, client = self._under_way(packet)
        reply = _reply(step, client.share_keys(_message(packet)))
        self._keep(client, Stage.SHARED, reply, "share")
        return reply

    def mask(self, packet: Packet) -> Packet:
        """Train the requested users, and send the masked sum of their uploads."""
        task, node = Task.of(packet), self._node
        inbox = _message(Packet({}, {n: v for n, v in packet.arrays.items() if n == MESSAGE}))
        shared = {n: v for n, v in packet.arrays.items() if n != MESSAGE}
        _, terms, client = self._under_way(Packet(_step_of(task).model_dump()))
        if client.stage is not ClientStage.MASK:
            raise RefusalError(Reason.SECURE, "asked for a masked sum at the wrong stage of the round")
        approval = self._approval(terms)
        group = approval.group(node.device.bundle.manifest)
        mine = next(each for each in terms.groups[group].members if each.key == self._membership.public)
        if task.digest != mine.task or len(task.slots) != mine.users:
            raise RefusalError(Reason.SECURE, "the task differs from the one in the terms")
        approval.check_cohort(approval.cohort(group), task.slots)
        if state_digest(shared) != terms.state:
            raise RefusalError(Reason.SECURE, "the state differs from the one in the terms")
        order = node.order(Packet(_order_of(task, terms).model_dump(), shared))
        here = self._members.slots()
        cohort = node.cohort(order, here)
        users = len(cohort.users)
        limits = node.limits(terms.federation)
        hidden = (terms.noise or 0.0) >= limits.enough_noise
        if not hidden and not set(task.slots) <= here.keys():
            raise RefusalError(Reason.MEMBERS, "the task names users who are not on this node")
        least = 0 if hidden else limits.least_own_users
        if users < least:  # a node that adds nothing hides nobody
            raise RefusalError(Reason.POLICY, f"fewer than {least} users of this node can train")
        if users > terms.capacity:
            raise RefusalError(Reason.MEMBERS, f"{users} users; the terms allow at most {terms.capacity}")
        fixed = terms.fixed_point(group, node.method, node.n_items)
        seed = secrets.randbits(63) if approval.is_repeated() else None
        work = node.work(order, shared, cohort, fixed.clip, seed=seed)
        assert not isinstance(work.total, list)  # such methods have no encoding
        values = values_of(node.method, node.n_items, work.total, work.peaks)
        message = client.mask(inbox, values, self._cover(terms, group) if terms.noise else None)
        answer = MaskedAnswer(**_step_of(task).model_dump(), version=node.version, slots=list(here))
        reply = Packet(answer.model_dump(), {MESSAGE: np.frombuffer(message, np.uint8)})
        kept = node.shared_by_owner(order, shared, here)
        with node.device.store.writing():
            self._ledger.advance(client.setup.context.hex(), Stage.UPLOADED, client.save(), slots=task.slots)
            self._members.stage(
                order.token, work.kept, kept, sent=reply, steps=_noted(terms, node), kind="mask"
            )
        return reply

    def _cover(self, terms: RoundTerms, group: int) -> Callable[[Ring], None]:
        """What puts this node's share of the noise on its encoded sum."""
        node = self._node
        encoding = terms.setup(group, node.method, node.n_items).encoding
        sigma = terms.whole_share(group, node.method, node.n_items)
        return lambda vector: add_share(
            node.method, node.n_items, encoding, vector, sigma=sigma, draw=self.draw
        )

    def confirm(self, packet: Packet) -> Packet:
        """Sign the list of summed nodes, if it is large enough and not too close to an earlier one."""
        step, terms, client = self._under_way(packet)
        approval = self._approval(terms)
        group = approval.group(self._node.device.bundle.manifest)
        cohort: dict[str, int] = {}
        message = client.confirm(
            _message(packet), lambda survivors: cohort.update(approval.check_survivors(group, survivors))
        )
        reply = _reply(step, message)
        self._keep(client, Stage.CONFIRMED, reply, "confirm", cohort)
        return reply

    def unmask(self, packet: Packet) -> Packet:
        """Reveal the shares that open the sum. The same request gets the same shares again."""
        step, message = Step.of(packet), _message(packet)
        request = hashlib.sha256(message).hexdigest()
        again = self._ledger.reveal(step.federation, step.round, step.attempt, request)
        if again is not None:
            reply = _reply(step, again)
            self._members.record(reply, (MASKED,), "unmask")
            return reply
        _, _, client = self._under_way(packet)
        revealed = client.unmask(message)
        reply = _reply(step, revealed)
        context = client.setup.context.hex()
        with self._node.device.store.writing():
            self._ledger.advance(context, Stage.REVEALED, None)
            self._ledger.keep_reveal(context, request, revealed)
            self._members.record(reply, (MASKED,), "unmask")
        self._wipe()
        return reply

    def finish(self, packet: Packet) -> Packet:
        """Store the final state and delete all secrets of rounds."""
        reply = self._node.finish(packet)
        self._ledger.erase()
        self._wipe()
        return reply

    def _wipe(self) -> None:
        if not self._node.device.store.truncate_log():
            _LOG.warning("another program reads the database: secrets of the last round are still in its log")

    def _under_way(self, packet: Packet) -> tuple[Step, RoundTerms, Client]:
        """Return the running masked round that a message belongs to."""
        step = Step.of(packet)
        self._node.check_joined(step.federation, masked=True)
        found = self._ledger.current(step.federation, step.round, step.attempt)
        if found is None:
            raise RefusalError(Reason.ROUND, f"no masked round {step.token} is under way here")
        return step, RoundTerms.read(found[0]), Client.load(found[1], self._membership.identity)

    def _approval(self, terms: RoundTerms) -> Approval:
        return Approval(terms, self._membership, self._node.limits(terms.federation), self._ledger)

    def _keep(
        self, client: Client, stage: Stage, reply: Packet, kind: str, cohort: dict[str, int] | None = None
    ) -> None:
        """The next secrets and the entry in the outbox, on the disk before the reply leaves."""
        with self._node.device.store.writing():
            self._ledger.advance(client.setup.context.hex(), stage, client.save(), cohort=cohort)
            self._members.record(reply, (MASKED,), kind)


def _order_of(task: Task, terms: RoundTerms) -> Order:
    """A task as an order, with what the terms say for all."""
    return Order(
        **task.model_dump(exclude={"salt"}),
        clip=terms.clip,
        bound=terms.bound,
    )


def _noted(terms: RoundTerms, node: Node) -> tuple[str, ...]:
    """Processing steps of an upload, for the outbox."""
    given = (("clip", terms.clip), ("noise", terms.noise), ("bound", terms.bound))
    said = (f"{name} {value:g}" for name, value in given if value)
    return (*said, PLAIN, MASKED)


def _no_arrays(packet: Packet) -> None:
    check_arrays({}, packet.arrays)


def _message(packet: Packet) -> bytes:
    wanted: Shape = ("b",)
    check_arrays({MESSAGE: (np.dtype("u1"), wanted)}, packet.arrays)
    return packet.arrays[MESSAGE].tobytes()


def _step_of(step: Step) -> Step:
    return Step(federation=step.federation, round=step.round, attempt=step.attempt)


def _reply(step: Step, message: bytes) -> Packet:
    return Packet(_step_of(step).model_dump(), {MESSAGE: np.frombuffer(message, np.uint8)})
