"""The quality gate of a served federation: whether a new version may replace the published one.

Devices rank one held-back item of each of their users and answer with randomized response (Warner 1965): a
user's bit "the item was among the first k" is sent as it is with probability 1 - q, and flipped with
probability q = 1 / (1 + e^ε). Every answer is ε-differentially private by itself. With a mean answer m over n
users, the hit rate is (m - q) / (1 - 2q), and its standard error √(m (1 - m) / n) / (1 - 2q).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import NamedTuple

from pydantic import Field

from solera.core.frozen import Frozen
from solera.federation.common.protocol import Evaluation, Packet, Reason, RefusalError, Verdict
from solera.federation.server.coordinator import Coordinator
from solera.federation.server.plan import GatePlan
from solera.federation.server.state import ServerState

Take = Callable[[int, Packet], None]
Exchange = Callable[[str, dict[int, Packet], Take], None]


def flip_probability(epsilon: float) -> float:
    """The probability q of a flipped answer."""
    return 1 / (1 + math.exp(epsilon))


class Tally(Frozen):
    """Answers of one evaluation: how many users answered, and how many of them with yes."""

    users: int = Field(ge=0)
    yes: int = Field(ge=0)
    epsilon: float = Field(gt=0)

    @property
    def rate(self) -> float:
        """Estimate of the share of hits. Noise can take it below 0 or above 1."""
        flip = flip_probability(self.epsilon)
        return (self._mean - flip) / (1 - 2 * flip)

    @property
    def error(self) -> float:
        """Standard error of the estimate; infinite without answers."""
        if not self.users:
            return math.inf
        spread = math.sqrt(self._mean * (1 - self._mean) / self.users)
        return spread / (1 - 2 * flip_probability(self.epsilon))

    @property
    def _mean(self) -> float:
        return self.yes / self.users if self.users else 0.0


class Decision(NamedTuple):
    """What the gate says, and why."""

    passes: bool
    reason: str


def decide(new: Tally, published: Tally | None, *, least_users: int, largest_drop: float) -> Decision:
    """Compare a version with the published one.

    A version fails if too few users answered, or if its hit rate is below (1 - `largest_drop`) times the
    published one by more than two standard errors of the difference.
    """
    if new.users < least_users:
        return Decision(False, f"only {new.users} users answered; the gate needs {least_users}")
    if published is None:
        return Decision(True, f"hit rate {new.rate:.3f} of {new.users} users; nothing to compare with")
    floor = (1 - largest_drop) * max(published.rate, 0.0)
    noise = math.hypot(new.error, (1 - largest_drop) * published.error)
    said = f"hit rate {new.rate:.3f}, published {published.rate:.3f}, floor {floor:.3f} - 2 × {noise:.3f}"
    return Decision(new.rate >= floor - 2 * noise, said)


def evaluate(
    coordinator: Coordinator, state: ServerState, nodes: Collection[int], gate: GatePlan, exchange: Exchange
) -> Tally:
    """Ask nodes about a state and add up what they answer."""
    asked: dict[int, int] = {}
    packets: dict[int, Packet] = {}
    for node, entry in coordinator.progress.ledger.nodes.items():
        if node in nodes and entry.numbers:
            items = coordinator.bundles[entry.version].manifest.items
            question = Evaluation(
                federation=coordinator.identity.federation,
                version=entry.version,
                slots=list(entry.numbers),
                top=gate.top,
                epsilon=gate.epsilon,
            )
            arrays = state.arrays_for(None, list(entry.numbers.values()), items)
            packets[node] = Packet(question.model_dump(), arrays)
            asked[node] = len(entry.numbers)
    answers: dict[int, Verdict] = {}

    def take(node: int, packet: Packet) -> None:
        verdict = Verdict.of(packet)
        if verdict.federation != coordinator.identity.federation:
            raise RefusalError(Reason.FEDERATION, f"the answer is for federation {verdict.federation}")
        if verdict.users != asked[node] or verdict.yes > verdict.users:
            raise RefusalError(Reason.MEMBERS, "the answer covers users who were not asked")
        answers[node] = verdict

    exchange("evaluate", packets, take)
    return Tally(
        users=sum(each.users for each in answers.values()),
        yes=sum(each.yes for each in answers.values()),
        epsilon=gate.epsilon,
    )
