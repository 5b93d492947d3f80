"""A node's half of a federation: answer the server's messages for the users of a device.

What a round changes of a user's own parameters stays pending until the server has said that it took the
update that came with it. So an update that is lost, late or refused leaves no trace, and a server that goes
on from its last checkpoint finds every node as it was then.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from solera.core.errors import ConfigError, DeviceError, SoleraError
from solera.core.fixed_point import largest_number
from solera.core.leaf import Params
from solera.core.method import Method
from solera.core.types import Floats
from solera.core.upload import PLAIN, Totals, Upload
from solera.data.ragged import Ragged
from solera.data.sampling import ClientData
from solera.device.device import Device
from solera.device.ledger import JOINED, LEFT, PAUSED, Ledger
from solera.device.model import method_of
from solera.device.outbox import BECAUSE
from solera.device.policy import Policy
from solera.device.tensors import Arrays
from solera.dp.mechanism import Clip
from solera.dp.settings import check_private
from solera.engine import BlockTraining, Simulation
from solera.engine.one_round import Sum, clipped, contribution_of, sum_for
from solera.engine.server import derived
from solera.federation.common.protocol import (
    Answer,
    Enrolment,
    Offer,
    Order,
    Packet,
    Reason,
    RefusalError,
    declined,
)
from solera.federation.common.uploads import check_arrays, pack_matrices, pack_single, pack_sums
from solera.federation.node.approval import check_day
from solera.federation.node.members import Members
from solera.federation.node.membership import Membership
from solera.federation.node.work import OWN, SHARED, Cohort, Total, Work, arrays_to_nodes, noted
from solera.privacy.secagg import SecAggError

_LOG = logging.getLogger(__name__)
_DOUBLE = np.dtype("<f8")  # of what was clipped: rounding a sum would be one more thing a user moves


class Node:
    """An open device that takes part in a federation."""

    def __init__(self, device: Device, threads: int = 0) -> None:
        self.device, self.members = device, Members(device)
        self.ledger = Ledger(device.store)
        manifest = device.bundle.manifest
        self.method = method_of(device.bundle)
        self.version, self.n_items, self.seed = manifest.catalogue_version, manifest.items, manifest.seed
        self.dtype = torch.float64 if manifest.precision == "double" else torch.float32
        self._wire = np.dtype("<f8" if manifest.precision == "double" else "<f4")
        self._train = BlockTraining(threads)
        self.membership: Membership | None = None  # of a node that can mask
        self.kinds: dict[str, Callable[[Packet], Packet]] = {
            "enrol": self.enrol,
            "train": self.train,
            "finish": self.finish,
        }

    def answer(self, kind: str, packet: Packet) -> Packet:
        """The reply to an offer ("enrol"), a round ("train") or its end ("finish"), or a refusal.

        Whatever it is, it is in the outbox before it leaves. Other kinds are those of masked rounds.
        """
        try:
            if kind not in self.kinds:
                raise RefusalError(Reason.SECURE, f"this node cannot {kind}: it was started without --roster")
            return self.kinds[kind](packet)
        except SoleraError as error:
            _LOG.warning("declined to %s: %s", kind, error)
            return self._declined(error)

    def _declined(self, error: SoleraError) -> Packet:
        """Return a refusal. It is recorded in the outbox like every message.

        What the server is told are sentences made for it. Other errors may name files of this device, or what
        is in them: they stay in the log.
        """
        told = isinstance(error, RefusalError | SecAggError | ConfigError)
        reason = error.message if told else "this node could not answer; its log says why"
        reply = declined(reason)
        try:
            self.members.record(reply, (f"{BECAUSE}{reason}",), "declined")
        except DeviceError as unwritable:  # then nothing but this fixed sentence leaves
            _LOG.warning("the refusal could not be recorded: %s", unwritable)
            return declined("this node could not answer, nor record that it did not")
        return reply

    def enrol(self, packet: Packet) -> Packet:
        """Report the catalogue and the user slots of this device, if the owner has agreed to the offer."""
        asked = Offer.of(packet)
        membership = self._membership(asked)
        self._check_consent(asked)
        if membership is not None:
            self.membership = membership
            membership.write(self.device.store)
        if asked.federation != self.members.federation:
            fed = [leaf.name for leaf in self.method.leaves if leaf.feeds]
            self.members.join(asked.federation, fed)
        answer = Enrolment(
            federation=asked.federation,
            version=self.version,
            catalogue=self.members.catalogue,
            method=self.method.name,
            slots=list(self.members.slots()),
            identity=self.membership.public if self.membership else None,
        )
        reply = Packet(answer.model_dump(exclude_none=True))
        self.members.record(reply, (), "enrol")
        return reply

    def _membership(self, asked: Offer) -> Membership | None:
        """The list of nodes that goes with an offer. A masked offer needs one with this device in it."""
        found = self.membership
        if found is not None and asked.roster is not None:
            found = found.taking(asked.roster)
        if asked.agreement.masked and (found is None or found.public not in found.roster.nodes.values()):
            raise RefusalError(Reason.SECURE, "no signed list of nodes has this device's key")
        return found

    def _check_consent(self, asked: Offer) -> None:
        """Refuse a federation that the owner has not agreed to, or that offers less than it did then."""
        standing = self.ledger.standing(asked.federation)
        is_new = standing is None or self.ledger.joins_next  # a yes said since then is used up by this
        if is_new or (
            standing == JOINED and asked.agreement.weaker_than(self.ledger.agreed(asked.federation))
        ):
            standing = self.ledger.asked(asked.federation, asked.agreement)
        if standing in (LEFT, PAUSED):
            raise RefusalError(Reason.CONSENT, f"the owner of this device has {standing} this federation")
        if standing != JOINED:
            raise RefusalError(
                Reason.CONSENT, "the owner of this device has not decided about this federation yet"
            )

    def check_joined(self, federation: str, *, masked: bool) -> None:
        """Refuse messages of a federation that this node does not take part in, or not in this way."""
        if federation != self.members.federation:
            raise RefusalError(Reason.FEDERATION, "this node has not enrolled in that federation")
        if self.ledger.standing(federation) != JOINED:
            raise RefusalError(Reason.CONSENT, "the owner of this device has not agreed to this federation")
        if not masked and not self.limits(federation).allow_plain:
            raise RefusalError(Reason.POLICY, "this device answers only masked rounds")

    def limits(self, federation: str) -> Policy:
        """The owner's policy, under what the owner agreed to in a federation.

        Two sums of a method of one round differ by what is new, which tells all of a changed history. So
        there is one, whatever the owner allows for methods of many rounds.
        """
        found = Policy.read(self.device.store).under(self.ledger.agreed(federation))
        if self.method.rounds_needed == 1:
            found = found.model_copy(update={"sums_without_noise": min(1, found.sums_without_noise)})
        return found

    def train(self, packet: Packet) -> Packet:
        """Train the requested users, and send what the method declares."""
        order = self.order(packet)
        self._check_plain(order)
        here = self.members.slots()
        cohort = self.cohort(order, here)
        work = self.work(order, packet.arrays, cohort, order.bound or math.inf)
        answer = Answer(
            federation=order.federation,
            round=order.round,
            attempt=order.attempt,
            version=self.version,
            trained=[order.slots[place] for place in cohort.places],
            slots=list(here),
            peak=float(np.median(work.peaks)) if work.peaks else 0.0,
        )
        wire = _DOUBLE if order.clip else self._wire
        reply = Packet(answer.model_dump(), self._packed(work.total, cohort.histories, wire))
        shared = {} if order.hold_back else self.shared_by_owner(order, packet.arrays, here)
        steps = (*noted(order), PLAIN)
        with self.device.store.writing():
            self.ledger.plain(order.federation, order.round or 0, order.attempt)
            self.members.stage(order.token, work.kept, shared, sent=reply, steps=steps, kind="train")
        return reply

    def _check_plain(self, order: Order) -> None:
        """Refuse an upload that the server sees, if the owner does not allow such uploads."""
        self.check_joined(order.federation, masked=False)
        policy = self.limits(order.federation)
        if policy.least_noise or policy.epsilon or policy.total_epsilon:
            raise RefusalError(
                Reason.POLICY, "this device requires masked rounds in which it adds the noise itself"
            )
        if policy.largest_clip is not None and not (order.clip and order.clip <= policy.largest_clip):
            raise RefusalError(Reason.POLICY, f"the round has no clip, or one above {policy.largest_clip:g}")
        check_day(policy, self.ledger)

    def finish(self, packet: Packet) -> Packet:
        """Store the final state. The reply only confirms it."""
        order = self._checked(packet)
        here = self.members.slots()
        shared = self.shared_by_owner(order, packet.arrays, here)
        answer = Answer(
            federation=order.federation,
            round=None,
            attempt=order.attempt,
            version=self.version,
            trained=[],
            slots=list(here),
        )
        reply = Packet(answer.model_dump())
        self.members.stage("", {}, shared, sent=reply, steps=(), kind="finish")
        return reply

    def order(self, packet: Packet) -> Order:
        """Parse an order to train."""
        order = self._checked(packet)
        if order.round is None or len(order.slots) != len(order.numbers):
            raise RefusalError(Reason.MALFORMED, "an order must name a round, and a number for every slot")
        if len(set(order.slots)) != len(order.slots):
            raise RefusalError(Reason.MALFORMED, "an order names a user twice")
        if order.clip:
            check_private(self.method)
        return order

    def _checked(self, packet: Packet) -> Order:
        """An order that is meant for this node as it is, its arrays checked; what was pending is settled."""
        order = Order.of(packet)
        if order.federation != self.members.federation:
            raise RefusalError(Reason.FEDERATION, "this node has not enrolled in that federation")
        if order.version != self.version:
            raise RefusalError(
                Reason.CATALOGUE, f"the order is for catalogue {order.version}; this node has {self.version}"
            )
        check_arrays(arrays_to_nodes(self.method, self.n_items, self._wire, order.round), packet.arrays)
        self.members.tell_newest(order.newest)
        self.members.settle(order.accepted)
        return order

    def cohort(self, order: Order, here: dict[int, str]) -> Cohort:
        """The requested users who can train: present, with some but not all items."""
        places = [place for place, slot in enumerate(order.slots) if slot in here]
        users = [here[order.slots[place]] for place in places]
        histories = self.members.histories(users, hold_back=order.hold_back)
        able = np.flatnonzero((histories.lengths > 0) & (histories.lengths < self.n_items))
        return Cohort(
            places=[places[each] for each in able],
            users=[users[each] for each in able],
            numbers=np.array([order.numbers[places[each]] for each in able], dtype=np.int64),
            histories=histories.take(able),
        )

    def work(
        self,
        order: Order,
        received: Arrays,
        cohort: Cohort,
        limit: float = math.inf,
        *,
        seed: int | None = None,
    ) -> Work:
        """Train the users; every number that one of them sends is cut off at `limit`.

        Users draw by the bundle's seed, as in a simulation, or by another one.
        """
        users, histories = cohort.users, cohort.histories
        if not users:
            return Work(None, {}, [])
        if self.method.one_round:
            total = sum_for(self.method, self.n_items)
            for client in range(len(histories)):
                part = contribution_of(self.method, histories, client)
                part = Clip(order.clip).contribution(part) if order.clip else part
                part = clipped(part, min(limit, largest_number(self.method)))
                total.add(part)
            return Work(total, {}, [0.0] * len(users))
        simulation = Simulation(
            self.method,
            ClientData(histories, histories.sorted_unique(), self.n_items, numbers=cohort.numbers),
            self._train,
            seed=self.seed,
            device=torch.device("cpu"),
            dtype=self.dtype,
        )
        shared = self._downloaded(self.method, received, cohort.places)
        simulation.restore(shared, simulation.state.personal.tensors())
        if seed is not None:
            simulation.seed = seed
        for client, user in enumerate(users):
            simulation.state.personal.take_client(client, self.members.personal(user))
        weights = self.method.weights(histories.lengths, self.n_items)
        sent, peaks = self._trained(self.method, simulation, order, weights, limit)
        kept = {
            user: {name: v.numpy() for name, v in simulation.state.personal.of_client(client).items()}
            for client, user in enumerate(users)
        }
        return Work(sent, kept, peaks)

    def _downloaded(self, method: Method, arrays: Arrays, places: list[int]) -> Params:
        """The server's state as the users see it."""
        shared: Params = {}
        for name, values in arrays.items():
            tensor = torch.from_numpy(values.copy())
            if name.startswith(OWN):
                shared[name[len(OWN) :]] = tensor[torch.tensor(places)]
            else:
                shared[name[len(SHARED) :]] = tensor
        shared |= derived(method, shared)
        return shared | method.memory(shared)

    def _trained(
        self, method: Method, simulation: Simulation, order: Order, weights: Floats, limit: float
    ) -> tuple[list[Upload] | Totals, list[float]]:
        everybody, round_, peaks = np.arange(len(weights)), order.round, list[float]()
        assert round_ is not None
        if not method.sums_alone:
            uploads = {
                client: result.upload.of_client(place, method.leaves).clipped(limit)
                for result in simulation.train_clients(round_, everybody)
                for place, client in enumerate(result.clients.tolist())
            }
            peaks = [float(each.peaks(method.leaves)) for each in uploads.values()]
            return [uploads[client] for client in everybody.tolist()], peaks
        totals = Totals(method.leaves, self.n_items, torch.device("cpu"))
        for result in simulation.train_clients(round_, everybody):
            upload = result.upload
            if order.clip:
                upload = Clip(order.clip).upload(upload, method.leaves)[0]
            upload = upload.clipped(limit)
            peaks += upload.peaks(method.leaves).tolist()
            weighted = method.aggregate.weighted and not order.clip
            totals.add(upload, torch.from_numpy(weights[result.clients]) if weighted else None)
        return totals, peaks

    def _packed(self, total: Total, histories: Ragged, wire: np.dtype[Any]) -> Arrays:
        """The same as arrays, of the rows that somebody touched."""
        if total is None:
            return {}
        if isinstance(total, Sum):
            assert self.method.one_round
            return pack_matrices(self.method, total.of(np.unique(histories.values)), wire)
        if isinstance(total, Totals):
            return pack_sums(total.sums(), wire)
        return pack_single(histories.lengths, total, wire)

    def shared_by_owner(self, order: Order, arrays: Arrays, here: dict[int, str]) -> dict[str | None, Arrays]:
        """What was received, for everybody and for every user alone, to recommend with."""
        kept: dict[str | None, Arrays] = {
            None: {name[len(SHARED) :]: v for name, v in arrays.items() if name.startswith(SHARED)}
        }
        own = {name[len(OWN) :]: v for name, v in arrays.items() if name.startswith(OWN)}
        for place, slot in enumerate(order.slots if own else ()):
            if slot in here:
                kept[here[slot]] = {name: values[place] for name, values in own.items()}
        return {} if kept == {None: {}} else kept
