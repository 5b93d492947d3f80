"""One node under other terms, at its worst: nobody checks signatures, and all self masks are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from solera.privacy.secagg import Client, Part, make_setup, new_identity, rules
from solera.privacy.secagg import messages as m
from solera.privacy.secagg.primitives import mask

LENGTH = 20_000
MEMBERS, VICTIM = 5, 0
KEYS = [new_identity() for _ in range(MEMBERS)]
PART = Part(name="x", length=LENGTH, clip=4, fraction_bits=20)


def opened_under_two_terms(trial: int, *, same: bool = False) -> float:
    """Correlation of the best that the server can compute with the victim's vector; `same`: as it was in 0.1.

    The victim has terms of its own. The others send zeros, as after a tiny clip. The server rewrites every
    message it passes on so that it seems to be of the receiver's terms.
    """
    common = make_setup(KEYS, 3, [PART], round_=trial)
    other = common if same else common.model_copy(update={"session": bytes(16)})
    setups = [other if client == VICTIM else common for client in range(MEMBERS)]
    clients = [Client(setup, number, KEYS[number]) for number, setup in enumerate(setups)]
    made = [m.Advertisement.from_bytes(client.advertise(), client.setup.context) for client in clients]
    shared = [_shares(client, made) for client in clients]
    seeds = [client._state.seed for client in clients]
    vector = np.random.default_rng(trial).normal(size=LENGTH)
    total = np.zeros(LENGTH, common.encoding.dtype)
    for number, client in enumerate(clients):
        inbox = _inbox(number, client.setup.context, shared)
        sent = client.mask(inbox, {"x": vector if number == VICTIM else np.zeros(LENGTH)})
        got = m.MaskedInput.from_bytes(sent, client.setup.context)
        total += np.frombuffer(got.vector, total.dtype)
        mask(total, rules.self_mask(client.setup, seeds[number], number), subtract=True)
    opened = common.encoding.decode(total)["x"]
    return abs(float(np.corrcoef(opened, vector)[0, 1]))


def _shares(client: Client, made: list[m.Advertisement]) -> m.SealedShares:
    context = client.setup.context
    entries = tuple((n, replace(each, context=context).to_bytes()) for n, each in enumerate(made))
    return m.SealedShares.from_bytes(client.share_keys(m.Keys(context, entries).to_bytes()), context)


def _inbox(receiver: int, context: bytes, shared: list[m.SealedShares]) -> bytes:
    parcels = tuple(
        (sender, rules.Parcel(dict(each.entries)[receiver], dict(each.hashes)[receiver], 1, 1).to_bytes())
        for sender, each in enumerate(shared)
        if sender != receiver
    )
    return m.Inbox(context, parcels, receiver).to_bytes()
