"""All parties of a round in one process, for simulators, measurements and tests."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from numpy.typing import ArrayLike
from pydantic import ValidationError

from solera.core.types import Floats
from solera.privacy.identity import Identity, SecAggError, public_identity
from solera.privacy.secagg.client import Client
from solera.privacy.secagg.rules import Stage
from solera.privacy.secagg.server import Server
from solera.privacy.secagg.setup import Encoding, Part, Setup

Values = Mapping[str, ArrayLike]


class Step(NamedTuple):
    """What one party did at one stage: a client, or the server (None), which sends one message to each.

    Seconds are those of the processor, so that a busy machine does not count.
    """

    stage: Stage
    client: int | None
    seconds: float
    sent: tuple[bytes, ...]


class Outcome(NamedTuple):
    """Result of the round on the server."""

    total: dict[str, Floats]
    survivors: tuple[int, ...]
    refused: dict[int, str]


def run_round(
    setup: Setup,
    identities: Sequence[Identity],
    inputs: Sequence[Values],
    dropouts: Mapping[int, Stage | int] | None = None,
    *,
    on_step: Callable[[Step], None] = lambda _: None,
    between: Callable[[Client, Identity], Client] = lambda client, _: client,
) -> Outcome:
    """One round with all stages; a client answers no longer from the stage that `dropouts` gives for it.

    `between` is what happens to a client between two messages, such as that it is saved and loaded.
    """
    ends = {client: Stage(stage) for client, stage in (dropouts or {}).items()}
    clients = {n: Client(setup, n, identity) for n, identity in enumerate(identities)}
    server = Server(setup)

    def answers(stage: Stage, sent: Mapping[int, bytes]) -> list[tuple[int, bytes]]:
        found = []
        for n, message in sent.items():
            if ends.get(n, Stage.DONE) > stage:
                clients[n] = between(clients[n], identities[n])
                begin = time.thread_time()
                answer = _answer(clients[n], stage, message, inputs[n])
                on_step(Step(stage, n, time.thread_time() - begin, (answer,)))
                found.append((n, answer))
        return found

    sent: Mapping[int, bytes] = dict.fromkeys(clients, b"")
    for stage, collect in (
        (Stage.ADVERTISE, server.collect_keys),
        (Stage.SHARE, server.collect_shares),
        (Stage.MASK, server.collect_masked),
        (Stage.CONFIRM, server.collect_confirmations),
    ):
        given = answers(stage, sent)
        begin = time.thread_time()
        sent = collect(given)
        on_step(Step(stage, None, time.thread_time() - begin, tuple(sent.values())))
    given = answers(Stage.UNMASK, sent)
    begin = time.thread_time()
    total = server.total(given)
    on_step(Step(Stage.UNMASK, None, time.thread_time() - begin, ()))
    return Outcome(total, server.survivors, server.refused)


def _answer(client: Client, stage: Stage, message: bytes, values: Values) -> bytes:
    if stage is Stage.ADVERTISE:
        return client.advertise()
    if stage is Stage.SHARE:
        return client.share_keys(message)
    if stage is Stage.MASK:
        return client.mask(message, values)
    return client.confirm(message) if stage is Stage.CONFIRM else client.unmask(message)


def make_setup(
    identities: Sequence[Identity], threshold: int, parts: Sequence[Part], *, bits: int = 32, round_: int = 0
) -> Setup:
    """A new session of these members."""
    try:
        encoding = Encoding.model_validate({"clients": len(identities), "parts": tuple(parts), "bits": bits})
        return Setup(
            session=os.urandom(16),
            round=round_,
            threshold=threshold,
            encoding=encoding,
            roster=tuple(public_identity(key) for key in identities),
        )
    except ValidationError as error:
        raise SecAggError(f"not a valid setup: {error.errors()[0]['msg']}") from None
