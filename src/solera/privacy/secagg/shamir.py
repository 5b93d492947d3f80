"""Shamir's secret sharing of 32 bytes over the prime field of 2^256 + 297.

A secret is the constant term of a polynomial of degree t − 1 whose other coefficients are random; a share is
its value at a point. Any t shares give the secret, fewer tell nothing of it.

pycryptodome's sharing, over GF(2^128), takes 16 bytes and works out the interpolation anew for each of them,
in a time that grows with t²: for the secrets of a round of 100 clients that is tens of seconds. All secrets
of a round are put together from shares at the same points, so here the weights are found once for all.
Python's integers take no constant time: a client's machine must be its own.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

from solera.privacy.identity import SecAggError
from solera.privacy.secagg.primitives import SECRET_BYTES

PRIME = 2**256 + 297
SHARE_BYTES = 33

Polynomial = tuple[int, ...]  # coefficients, the constant term first


def polynomial(constant: int, threshold: int) -> Polynomial:
    """A random polynomial with this constant term, of which `threshold` values tell everything."""
    return (constant, *(secrets.randbelow(PRIME) for _ in range(threshold - 1)))


def value(coefficients: Polynomial, point: int) -> int:
    """The polynomial's value at a point."""
    found = 0
    for coefficient in reversed(coefficients):
        found = (found * point + coefficient) % PRIME
    return found


def weights(points: Sequence[int]) -> dict[int, int]:
    """Lagrange's: the value at 0 is the sum of weight · share. One per point, all points distinct."""
    found = {}
    for point in points:
        above = below = 1
        for other in points:
            if other != point:
                above = above * other % PRIME
                below = below * (other - point) % PRIME
        found[point] = above * pow(below, -1, PRIME) % PRIME
    return found


def combine(weight: Mapping[int, int], shares: Mapping[int, bytes]) -> bytes:
    """The secret, from shares at exactly the points that the weights are of."""
    found = sum(weight[point] * number(shares[point]) for point in weight) % PRIME
    if found >= 1 << 8 * SECRET_BYTES:
        raise SecAggError("the shares do not belong to the same secret")
    return found.to_bytes(SECRET_BYTES)


def number(share: bytes) -> int:
    """A share as an element of the field."""
    found = int.from_bytes(share)
    if len(share) != SHARE_BYTES or found >= PRIME:
        raise SecAggError("a share is not an element of the field")
    return found


def share(element: int) -> bytes:
    """An element of the field as a share."""
    return element.to_bytes(SHARE_BYTES)
