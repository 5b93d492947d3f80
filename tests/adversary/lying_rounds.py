"""A server that gives one node other terms than the rest, and passes on what comes as if it had not."""

from __future__ import annotations

from dataclasses import replace

from solera.federation.common.protocol import Packet
from solera.federation.secure.terms import RoundTerms
from solera.federation.server.masked_round import MaskedRound, Session
from solera.privacy.secagg import messages as m

CLIPS = (1e-300, 1e-9)  # by attempt: under which everybody else adds nothing


class Lying(MaskedRound):
    """The first member has the honest terms."""

    def _packet(self, kind: str, node: int, data: bytes) -> Packet:
        honest = super()._packet(kind, node, data)
        if kind == "advertise" and node != self._sessions[0].nodes[0]:
            return replace(honest, fields=honest.fields | {"clip": self._clip})
        return honest

    @property
    def _clip(self) -> float:
        return CLIPS[self._terms.attempt]

    def _collect(self, session: Session, kind: str, answers: list[tuple[int, bytes]]) -> None:
        if kind != "advertise":
            return super()._collect(session, kind, answers)
        coordinator = self._coordinator
        other = RoundTerms.of(self._packet("advertise", session.nodes[-1], b""))
        contexts = [
            terms.setup(0, coordinator.method, coordinator.n_items).context
            for terms in (self._terms, *[other] * (len(session.nodes) - 1))
        ]
        made = [(number, m.Advertisement.from_bytes(data, contexts[number])) for number, data in answers]
        for receiver, _ in made:  # to each, as if all had its own terms
            context = contexts[receiver]
            entries = tuple((number, replace(each, context=context).to_bytes()) for number, each in made)
            session.next[receiver] = m.Keys(context, entries).to_bytes()
        return None
