"""A client: one method per stage, bytes in and bytes out, and a state that can be put away in between."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Self

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import ArrayLike
from pydantic import BaseModel, ConfigDict, ValidationError

from solera.privacy.identity import Identity, SecAggError, is_signed, public_identity, sign
from solera.privacy.secagg import rules, shamir, vss
from solera.privacy.secagg.messages import (
    Advertisement,
    Confirmation,
    Confirmations,
    Inbox,
    Keys,
    MaskedInput,
    Reveal,
    SealedShares,
    Survivors,
)
from solera.privacy.secagg.primitives import (
    Ring,
    commitment,
    mask,
    new_secret,
    private_key,
    public_key,
    seal,
    unseal,
)
from solera.privacy.secagg.rules import Stage
from solera.privacy.secagg.setup import Setup

_BYTES = ConfigDict(extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")


class Peer(BaseModel):
    """What a client knows of another; no shares if those that came could not be used."""

    model_config = _BYTES

    box_key: bytes
    mask_key: bytes
    seed_share: bytes = b""
    mask_key_share: bytes = b""


class State(BaseModel):
    """Secret state that a client keeps between stages."""

    model_config = _BYTES

    setup: Setup
    number: int
    stage: Stage = Stage.ADVERTISE
    box_secret: bytes = b""
    mask_secret: bytes = b""
    seed: bytes = b""
    peers: dict[int, Peer] = {}  # itself among them
    keys: bytes = b""  # SHA-256 of the message with all advertisements
    sharers: tuple[int, ...] = ()
    survivors: tuple[int, ...] = ()


class Client:
    """One member of a round.

    Every stage is answered once, in order; a second request for it is refused, whatever it asks for. So a
    client never gives shares of both secrets of one peer. A request that is refused changes nothing.

    A node that starts a process for each message keeps the state on its disk: `save` it before the answer is
    sent, never load an older one again, and delete it at the end. The identity is not part of it. For one
    `setup.context` a node makes one client, ever: two vectors under the same masks have a difference without.
    """

    def __init__(self, setup: Setup, number: int, identity: Identity) -> None:
        self._begin(State(setup=setup, number=number), identity)

    def _begin(self, state: State, identity: Identity) -> None:
        self._state, self._setup, self._identity = state, state.setup, identity
        roster = state.setup.roster
        if not 0 <= state.number < len(roster) or roster[state.number] != public_identity(identity):
            raise SecAggError("the roster has another key under this number", "use the node's own number")

    @property
    def setup(self) -> Setup:
        """The agreed setup of the round."""
        return self._setup

    @property
    def stage(self) -> Stage:
        """The next stage."""
        return self._state.stage

    def save(self) -> bytes:
        """The state as bytes, including secrets."""
        return self._state.model_dump_json().encode()

    @classmethod
    def load(cls, data: bytes, identity: Identity) -> Self:
        """Restore a client from a saved state."""
        try:
            state = State.model_validate_json(data)
        except ValidationError as error:
            raise SecAggError(f"not the state of a client: {error.errors()[0]['msg']}") from None
        client = cls.__new__(cls)
        client._begin(state, identity)
        return client

    def advertise(self) -> bytes:
        """Make the keys of this round; sign the public ones."""
        state, setup = self._state, self._setup
        rules.at_stage(state.stage, Stage.ADVERTISE)
        state.box_secret, state.mask_secret, state.seed = new_secret(), new_secret(), new_secret()
        public = (public_key(state.box_secret), public_key(state.mask_secret))
        committed = commitment(state.seed, setup.purpose("seed", state.number))
        made = Advertisement(setup.context, state.number, *public, committed, signature=b"")
        signature = sign(self._identity, rules.statement(setup, made))
        state.stage = Stage.SHARE
        return replace(made, signature=signature).to_bytes()

    def share_keys(self, keys: bytes) -> bytes:
        """Check everybody's keys; seal for each a share of the seed and one of the mask key."""
        state, setup = self._state, self._setup
        rules.at_stage(state.stage, Stage.SHARE)
        told = Keys.from_bytes(keys, setup.context)
        rules.enough(setup, dict(told.entries), "have advertised keys")
        made = [rules.advertisement(setup, client, data) for client, data in told.entries]
        peers = {each.client: Peer(box_key=each.box_key, mask_key=each.mask_key) for each in made}
        own = peers.get(state.number)
        if own is None or own.mask_key != public_key(state.mask_secret):
            raise SecAggError("this client's keys are missing from the list of all keys")
        if len({key for peer in peers.values() for key in (peer.box_key, peer.mask_key)}) < 2 * len(peers):
            raise SecAggError("a key is listed twice")
        dealt = vss.deal(
            state.seed,
            state.mask_secret,
            setup.threshold,
            [client + 1 for client in peers],
            rules.dealing(setup, state.number),
        )
        secret, boxes = private_key(state.box_secret), []
        for client, peer in peers.items():
            if client != state.number:
                key = rules.box_key(setup, secret, peer.box_key, state.number, client)
                boxes.append((client, seal(key, dealt.shares[client + 1].to_bytes())))
        own.seed_share, own.mask_key_share, _ = dealt.shares[state.number + 1]
        state.peers, state.keys, state.stage = peers, hashlib.sha256(keys).digest(), Stage.MASK
        return SealedShares(
            setup.context,
            tuple(boxes),
            state.number,
            tuple((client, dealt.hashes[client + 1]) for client in peers),
            tuple((place, shamir.share(each)) for place, each in enumerate(dealt.check)),
        ).to_bytes()

    def mask(
        self, inbox: bytes, values: Mapping[str, ArrayLike], cover: Callable[[Ring], None] | None = None
    ) -> bytes:
        """Open the boxes, hide the values under the own mask and one with each peer; forget the secrets.

        `cover` adds noise to the encoded values, in place.
        Shares that cannot be used do not end the round: their dealer is named, and the others' are enough.
        """
        state, setup = self._state, self._setup
        rules.at_stage(state.stage, Stage.MASK)
        received = Inbox.from_bytes(inbox, setup.context)
        if received.client != state.number:
            raise SecAggError("the inbox belongs to another client")
        parcels = {client: rules.Parcel.from_bytes(data) for client, data in received.entries}
        if not parcels.keys() <= state.peers.keys() - {state.number}:
            raise SecAggError("a box comes from a client without keys")
        sharers = sorted({*parcels, state.number})
        rules.enough(setup, sharers, "have shared their keys")
        box_secret, mask_secret = private_key(state.box_secret), private_key(state.mask_secret)
        opened = {client: self._open(box_secret, client, parcel) for client, parcel in parcels.items()}
        vector = setup.encoding.encode(values)
        if cover is not None:
            cover(vector)
        mask(vector, rules.self_mask(setup, state.seed, state.number))
        for client in parcels:
            public = state.peers[client].mask_key
            key = rules.pair_mask(setup, mask_secret, public, state.number, client)
            mask(vector, key, subtract=client < state.number)
        for client, shares in opened.items():
            if shares is not None:
                state.peers[client].seed_share, state.peers[client].mask_key_share, _ = shares
        state.box_secret = state.mask_secret = state.seed = b""
        state.sharers, state.stage = tuple(sharers), Stage.CONFIRM
        unusable = tuple(client for client, shares in opened.items() if shares is None)
        return MaskedInput(setup.context, state.number, unusable, vector.view(np.uint8).data).to_bytes()

    def confirm(
        self, survivors: bytes, approve: Callable[[tuple[int, ...]], None] = lambda clients: None
    ) -> bytes:
        """Sign the list of survivors: this client and enough others, all sharing a mask with it.

        `approve` raises an error if the node does not want to be summed up with these clients.
        """
        state, setup = self._state, self._setup
        rules.at_stage(state.stage, Stage.CONFIRM)
        clients = Survivors.from_bytes(survivors, setup.context).clients
        if state.number not in clients or not set(clients) <= set(state.sharers):
            raise SecAggError("the survivors lack this client, or include one that has shared no keys")
        rules.enough(setup, clients, "have survived")
        approve(clients)
        signature = sign(self._identity, rules.view(setup, state.keys, state.sharers, clients))
        state.survivors, state.stage = clients, Stage.UNMASK
        return Confirmation(setup.context, state.number, signature).to_bytes()

    def unmask(self, confirmations: bytes) -> bytes:
        """If enough survivors have signed the same: shares of their seeds, and of the others' mask keys."""
        state, setup = self._state, self._setup
        rules.at_stage(state.stage, Stage.UNMASK)
        signatures = Confirmations.from_bytes(confirmations, setup.context).entries
        rules.enough(setup, dict(signatures), "have confirmed the survivors")
        said = rules.view(setup, state.keys, state.sharers, state.survivors)
        for client, signature in signatures:
            if client not in state.survivors or not is_signed(setup.roster[client], signature, said):
                raise SecAggError(f"client {client} has not confirmed these survivors")
        dropped = sorted(set(state.sharers) - set(state.survivors))
        seeds = ((client, state.peers[client].seed_share) for client in state.survivors)
        mask_keys = ((client, state.peers[client].mask_key_share) for client in dropped)
        reveal = Reveal(
            setup.context,
            state.number,
            tuple(entry for entry in seeds if entry[1]),
            tuple(entry for entry in mask_keys if entry[1]),
        )
        state.peers, state.stage = {}, Stage.DONE
        return reveal.to_bytes()

    def _open(self, own: X25519PrivateKey, sender: int, parcel: rules.Parcel) -> vss.Shares | None:
        """The shares in a box; None if they are not those that their dealer has published."""
        state, setup = self._state, self._setup
        public = state.peers[sender].box_key
        key = rules.box_key(setup, own, public, sender, state.number)
        try:
            shares = vss.Shares.from_bytes(unseal(key, parcel.box))
        except SecAggError:
            return None
        purpose, point = rules.dealing(setup, sender), state.number + 1
        hold = vss.holds(
            purpose,
            point,
            shares,
            hashes=parcel.hashes,
            challenge=parcel.challenge,
            expected=parcel.expected,
        )
        return shares if hold else None
