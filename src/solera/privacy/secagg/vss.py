"""Verifiable secret sharing: a wrong share is detected and its sender identified.

A client deals shares f(j) of its seed, g(j) of its mask key and b(j) of a random blinding polynomial to every
client j, and publishes hashes of all of them. A challenge ρ follows from the hashes. The client then also
publishes the polynomial

    h = b + ρ · f + ρ² · g,

which tells nothing of f and g, as b is random and used once. Client j checks its three shares against their
hashes and h(j) = b(j) + ρ f(j) + ρ² g(j). Shares that pass lie on polynomials of degree t − 1, except with a
chance of about 2^-255: the dealer was bound to its shares before it knew ρ. This is the hash-based sharing of
Atapoor, Baghery, Cozzo and Pedersen (ASIACRYPT 2023), for two secrets at once.

When shares are revealed, the hashes tell who reveals a wrong one. Shares are uniform in a field of 256 bits,
so their hashes hide them.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from solera.privacy.identity import SecAggError
from solera.privacy.secagg import shamir
from solera.privacy.secagg.shamir import PRIME, SHARE_BYTES, Polynomial

HASH_BYTES = 32
SEED, MASK_KEY, BLINDING = 0, 1, 2  # places in shares and hashes
HASHES_BYTES = 3 * HASH_BYTES
SHARES_BYTES = 3 * SHARE_BYTES


class Shares(NamedTuple):
    """Shares that one client receives."""

    seed: bytes
    mask_key: bytes
    blinding: bytes

    def to_bytes(self) -> bytes:
        """One after the other, of fixed length."""
        return b"".join(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> Shares:
        """The reverse; each must be an element of the field."""
        if len(data) != SHARES_BYTES:
            raise SecAggError("shares have the wrong length")
        shares = cls(*(data[at : at + SHARE_BYTES] for at in range(0, SHARES_BYTES, SHARE_BYTES)))
        for each in shares:
            shamir.number(each)
        return shares


class Dealt(NamedTuple):
    """All that a client deals, by the receiver's point; the shares are secret, the rest is public."""

    shares: dict[int, Shares]
    hashes: dict[int, bytes]
    check: Polynomial  # h


def deal(seed: bytes, mask_key: bytes, threshold: int, points: Iterable[int], purpose: bytes) -> Dealt:
    """Shares of both secrets for all points, and what they can be checked by."""
    of_seed = shamir.polynomial(int.from_bytes(seed), threshold)
    of_mask_key = shamir.polynomial(int.from_bytes(mask_key), threshold)
    blinding = shamir.polynomial(secrets.randbelow(PRIME), threshold)
    all_ = (of_seed, of_mask_key, blinding)
    shares = {point: Shares(*(shamir.share(shamir.value(each, point)) for each in all_)) for point in points}
    hashes = {point: hashes_of(purpose, point, each) for point, each in shares.items()}
    challenge = challenge_of(purpose, hashes)
    check = tuple(
        (b + challenge * f + challenge * challenge * g) % PRIME
        for f, g, b in zip(of_seed, of_mask_key, blinding, strict=True)
    )
    return Dealt(shares, hashes, check)


def hashes_of(purpose: bytes, point: int, shares: Shares) -> bytes:
    """Of a client's three shares, one after the other."""
    return b"".join(hash_of(purpose, point, place, each) for place, each in enumerate(shares))


def hash_of(purpose: bytes, point: int, place: int, share: bytes) -> bytes:
    """SHA-256 of one share: `place` is SEED, MASK_KEY or BLINDING."""
    return hashlib.sha256(purpose + point.to_bytes(4) + bytes([place]) + share).digest()


def challenge_of(purpose: bytes, hashes: Mapping[int, bytes]) -> int:
    """ρ: the dealer knows it only when all hashes are fixed."""
    digest = hashlib.sha512(purpose + b"challenge")
    for point in sorted(hashes):
        digest.update(point.to_bytes(4) + hashes[point])
    return int.from_bytes(digest.digest()) % PRIME


def holds(
    purpose: bytes, point: int, shares: Shares, *, hashes: bytes, challenge: int, expected: int
) -> bool:
    """Whether the shares that were dealt to a point are those that were published; `expected` is h there."""
    f, g, b = map(shamir.number, shares)
    return (
        hashes_of(purpose, point, shares) == hashes
        and (b + challenge * f + challenge * challenge * g) % PRIME == expected
    )


def is_published(purpose: bytes, point: int, place: int, share: bytes, hashes: bytes) -> bool:
    """Whether one revealed share is the one that was published for its point."""
    return hash_of(purpose, point, place, share) == hashes[place * HASH_BYTES :][:HASH_BYTES]
