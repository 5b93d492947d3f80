"""Checks and computations shared by clients and server."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from solera.privacy.identity import SecAggError, is_signed
from solera.privacy.secagg import shamir, vss
from solera.privacy.secagg.messages import Advertisement, Reader, packed_numbers
from solera.privacy.secagg.primitives import NONCE_BYTES, TAG_BYTES, agree, derive
from solera.privacy.secagg.setup import Setup

BOX_BYTES = NONCE_BYTES + vss.SHARES_BYTES + TAG_BYTES


class Stage(IntEnum):
    """Next stage of a party."""

    ADVERTISE = 0
    SHARE = 1
    MASK = 2
    CONFIRM = 3
    UNMASK = 4
    DONE = 5


def at_stage(now: Stage, wanted: Stage) -> None:
    """Check that every stage runs once and in order."""
    if now != wanted:
        raise SecAggError(f"asked for stage {wanted.name.lower()} during stage {now.name.lower()}")


def enough(setup: Setup, clients: Iterable[int], what: str) -> None:
    """Check that at least `threshold` clients are present, all of them members."""
    numbers = list(clients)
    if any(client >= len(setup.roster) for client in numbers):
        raise SecAggError("a client is not in the roster")
    if len(numbers) < setup.threshold:
        raise SecAggError(f"only {len(numbers)} clients {what}, fewer than the threshold {setup.threshold}")


def statement(setup: Setup, made: Advertisement) -> bytes:
    """Bytes that the signature of an advertisement covers."""
    purpose = setup.purpose("advertisement", made.client)
    return purpose + made.box_key + made.mask_key + made.commitment


def advertisement(setup: Setup, client: int, data: bytes) -> Advertisement:
    """Parse a client's advertisement and check its signature."""
    made = Advertisement.from_bytes(data, setup.context)
    if made.client != client or client >= len(setup.roster):
        raise SecAggError("an advertisement belongs to another client")
    if not is_signed(setup.roster[client], made.signature, statement(setup, made)):
        raise SecAggError(f"the advertisement of client {client} is not signed by it")
    return made


def view(setup: Setup, keys: bytes, sharers: Iterable[int], survivors: Iterable[int]) -> bytes:
    """What a confirmation's signature is of: all that a client has been told of who takes part.

    `keys` is the SHA-256 of the message with all advertisements.
    """
    return setup.purpose("survivors") + keys + packed_numbers(sharers) + packed_numbers(survivors)


class Parcel(NamedTuple):
    """A box with shares of another client, and the data to check them."""

    box: bytes
    hashes: bytes
    challenge: int
    expected: int

    def to_bytes(self) -> bytes:
        """Serialize with fixed lengths."""
        return self.box + self.hashes + shamir.share(self.challenge) + shamir.share(self.expected)

    @classmethod
    def from_bytes(cls, data: bytes) -> Parcel:
        """Parse what `to_bytes` wrote."""
        reader = Reader(data)
        box, hashes = reader.take(BOX_BYTES), reader.take(vss.HASHES_BYTES)
        numbers = [shamir.number(reader.take(shamir.SHARE_BYTES)) for _ in range(2)]
        reader.end()
        return cls(box, hashes, *numbers)


def dealing(setup: Setup, dealer: int) -> bytes:
    """What the hashes of a client's shares are for."""
    return setup.purpose("shares", dealer)


def box_key(setup: Setup, own: X25519PrivateKey, public: bytes, sender: int, receiver: int) -> bytes:
    """Of the one box that the sender seals for the receiver."""
    return derive(agree(own, public), setup.purpose("box", sender, receiver))


def pair_mask(setup: Setup, own: X25519PrivateKey, public: bytes, one: int, other: int) -> bytes:
    """The key of the mask that two clients share: the one with the lower number adds it."""
    return derive(agree(own, public), setup.purpose("pair mask", *sorted((one, other))))


def self_mask(setup: Setup, seed: bytes, client: int) -> bytes:
    """The key of a client's own mask."""
    return derive(seed, setup.purpose("self mask", client))
