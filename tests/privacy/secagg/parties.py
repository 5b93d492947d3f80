"""A round that is led to a stage by hand, for tests to go on as they like."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from solera.privacy.secagg import Client, Part, Server, Setup, Stage, make_setup

VALUES = {"x": np.zeros(8)}
PARTS = [Part(name="x", length=8, clip=4, fraction_bits=16)]


@dataclass
class Parties:
    """Clients and server at one stage, and what each client is sent for it."""

    setup: Setup
    clients: dict[int, Client]
    server: Server
    sent: dict[int, bytes]
    answers: dict[int, bytes]  # of the stage before

    def answer(self, client: int, message: bytes | None = None) -> bytes:
        """Of one client, to what it is sent or to something else."""
        data = self.sent[client] if message is None else message
        actor = self.clients[client]
        if self.server.stage is Stage.MASK:
            return actor.mask(data, VALUES)
        ask: dict[Stage, Callable[[bytes], bytes]] = {
            Stage.SHARE: actor.share_keys,
            Stage.CONFIRM: actor.confirm,
            Stage.UNMASK: actor.unmask,
        }
        return actor.advertise() if self.server.stage is Stage.ADVERTISE else ask[self.server.stage](data)

    def collect(self, answers: dict[int, bytes]):
        """What the server makes of answers at this stage."""
        collect = [
            self.server.collect_keys,
            self.server.collect_shares,
            self.server.collect_masked,
            self.server.collect_confirmations,
            self.server.total,
        ]
        return collect[self.server.stage](answers.items())


def led_to(stage: Stage, identities, *, setup=None, n=5, threshold=3, dropouts=None) -> Parties:
    """`dropouts` gives the stage from which a client answers no longer."""
    keys, ends = identities[:n], dropouts or {}
    setup = setup or make_setup(keys, threshold, PARTS)
    clients = {c: Client(setup, c, key) for c, key in enumerate(keys)}
    parties = Parties(setup, clients, Server(setup), dict.fromkeys(clients, b""), {})
    while parties.server.stage < stage:
        now = parties.server.stage
        parties.answers = {c: parties.answer(c) for c in parties.sent if ends.get(c, Stage.DONE) > now}
        parties.sent = parties.collect(parties.answers)
    return parties
