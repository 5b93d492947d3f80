"""Evaluation of a version on the devices: what is asked, and the sum of the answers."""

from __future__ import annotations

from collections.abc import Callable, Collection

from solera.federation.common.protocol import Evaluation, Packet, Reason, RefusalError, Verdict
from solera.federation.server.coordinator import Coordinator
from solera.federation.server.gate import Tally
from solera.federation.server.plan import GatePlan
from solera.federation.server.state import ServerState

Take = Callable[[int, Packet], None]
Exchange = Callable[[str, dict[int, Packet], Take], None]


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
