"""Evaluation on a device: whether each user's held-back item is ranked high, told by randomized response.

The server learns one noisy count of yes per node. Every user who is asked answers. A user who has no item to
hold back answers like one whose item is ranked low, and is flipped just as often.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable

import numpy as np

from solera.data.ragged import Ragged
from solera.device.model import Model
from solera.federation.common.protocol import Evaluation, Packet, Reason, RefusalError, Verdict
from solera.federation.common.uploads import check_arrays
from solera.federation.node.node import Node
from solera.federation.node.work import OWN, SHARED, arrays_to_nodes, without_last

_KIND = "evaluate"
_RESOLUTION = 1 << 53


def flip(probability: float) -> bool:
    """True with that probability, from the operating system's generator, which nobody can predict."""
    return secrets.randbelow(_RESOLUTION) < probability * _RESOLUTION


class Evaluating:
    """Gives a node the answer to evaluations."""

    def __init__(self, node: Node, coin: Callable[[float], bool] = flip) -> None:
        self._node, self._members, self._coin = node, node.members, coin
        node.kinds[_KIND] = self.evaluate

    def evaluate(self, packet: Packet) -> Packet:
        """Tell how often the received state ranks the held-back items of the users high."""
        asked, node = Evaluation.of(packet), self._node
        self._check(asked)
        wire = np.dtype("<f8" if node.device.bundle.manifest.precision == "double" else "<f4")
        check_arrays(arrays_to_nodes(node.method, node.n_items, wire, None), packet.arrays)
        here, probability = self._members.slots(), 1 / (1 + math.exp(asked.epsilon))
        yes = 0
        for place, slot in enumerate(asked.slots):
            hit = slot in here and self._is_hit(here[slot], place, asked.top, packet)
            yes += hit is not self._coin(probability)
        verdict = Verdict(federation=asked.federation, users=len(asked.slots), yes=yes)
        reply = Packet(verdict.model_dump())
        with node.device.store.writing():
            node.ledger.evaluated(asked.federation, len(asked.slots), asked.epsilon)
            self._members.record(reply, (f"randomized response {asked.epsilon:g}",), _KIND)
        return reply

    def _check(self, asked: Evaluation) -> None:
        node = self._node
        node.check_joined(asked.federation, masked=False)
        if asked.version != node.version:
            raise RefusalError(
                Reason.CATALOGUE, f"the state is for catalogue {asked.version}; this node has {node.version}"
            )
        limits = node.limits(asked.federation)
        if limits.least_noise or limits.epsilon or limits.total_epsilon:
            raise RefusalError(Reason.POLICY, "this device limits ε, and answers no evaluations")
        spent = node.ledger.evaluation_epsilon() + asked.epsilon
        if spent > limits.evaluation_epsilon + 1e-9:
            raise RefusalError(
                Reason.POLICY,
                f"evaluations would have cost ε = {spent:g} in all;"
                f" this device allows {limits.evaluation_epsilon:g}",
            )
        if len(set(asked.slots)) != len(asked.slots):  # two answers of one user would cost twice the ε
            raise RefusalError(Reason.MALFORMED, "an evaluation names a user twice")

    def _is_hit(self, user: str, place: int, top: int, packet: Packet) -> bool:
        """Whether fewer than `top` of the items that a user does not know are above the one held back."""
        history = self._members.histories([user])
        if not 1 < len(history.values) < self._node.n_items:
            return False
        common = {n[len(SHARED) :]: v for n, v in packet.arrays.items() if n.startswith(SHARED)}
        own = {n[len(OWN) :]: v[place] for n, v in packet.arrays.items() if n.startswith(OWN)}
        device = self._node.device
        model = Model(device.bundle, common | own, device.kept(user))
        return is_hit(model, history, top)


def is_hit(model: Model, history: Ragged, top: int) -> bool:
    """Whether the last item of a history is among the first `top`, ranked by the rest of it."""
    known = without_last(history)
    scores = model.scores(known.row(0), known.days_of(0)).double().numpy().copy()
    mine = scores[history.values[-1]]
    scores[known.values] = -np.inf
    return bool(np.isfinite(mine) and (scores > mine).sum() < top)
