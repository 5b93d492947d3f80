"""RFC 9497: a verifiable oblivious pseudorandom function, ristretto255-SHA512 in mode VOPRF.

A device learns F(k, x) for its input x. The helper, who has the key k, learns nothing of x, and the device
nothing of k:

    device    r random,  β = r · H(x)
    helper    ε = k · β, with a proof that this is the k of the public key K = k · G
    device    F(k, x) = SHA-512(x, r⁻¹ · ε)

One proof is for all elements of a request. With it no helper can give one device a key of its own.

The group is libsodium's, by the package rbcl; what is here are the RFC's formulas on it. Names are the RFC's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.util import find_spec

from solera.core.errors import ConfigError, SoleraError

if find_spec("rbcl") is None:
    raise ConfigError("threshold reports need rbcl", "pip install 'solera[reports]'")

import rbcl

ELEMENT_BYTES = SCALAR_BYTES = 32
PROOF_BYTES = 2 * SCALAR_BYTES
OUTPUT_BYTES = 64
_CONTEXT = b"OPRFV1-\x01-ristretto255-SHA512"


class ReportsError(SoleraError):
    """A refused message or request, with the reason. Nothing was changed."""


def random_scalar() -> bytes:
    """A scalar that is not 0, from the operating system: a blind."""
    return bytes(rbcl.crypto_core_ristretto255_scalar_random())


def derive_key(seed: bytes, info: bytes) -> bytes:
    """DeriveKeyPair: the helper's key from a secret seed of 32 bytes."""
    for counter in range(256):
        key = _hash_to_scalar(seed + _sized(info) + counter.to_bytes(1), b"DeriveKeyPair" + _CONTEXT)
        if any(key):
            return key
    raise ReportsError("no key can be derived from this seed")


def public_key(key: bytes) -> bytes:
    """The helper's public key."""
    return bytes(rbcl.crypto_scalarmult_ristretto255_base(key))


def blind(data: bytes, scalar: bytes) -> bytes:
    """The blinded element of an input, by a scalar that is used for nothing else."""
    uniform = _expanded(data, b"HashToGroup-" + _CONTEXT)
    return _times(scalar, bytes(rbcl.crypto_core_ristretto255_from_hash(uniform)))


def evaluate(key: bytes, blinded: Sequence[bytes], random: bytes | None = None) -> tuple[list[bytes], bytes]:
    """BlindEvaluate: the evaluated elements, and the proof for all of them."""
    for each in blinded:
        _check(each)
    evaluated = [_times(key, each) for each in blinded]
    public, scalar = public_key(key), random or random_scalar()
    m = _composite(public, blinded, evaluated, blinded)
    commitments = rbcl.crypto_scalarmult_ristretto255_base(scalar), _times(scalar, m)
    challenge = _challenge(public, m, _times(key, m), *commitments)
    product = rbcl.crypto_core_ristretto255_scalar_mul(challenge, key)
    return evaluated, challenge + bytes(rbcl.crypto_core_ristretto255_scalar_sub(scalar, product))


def verify(public: bytes, blinded: Sequence[bytes], evaluated: Sequence[bytes], proof: bytes) -> None:
    """Refuse elements that were not all evaluated with the key of this public key."""
    if len(blinded) != len(evaluated) or len(proof) != PROOF_BYTES:
        raise ReportsError("the helper's answer has not the length of the request")
    for each in (public, *evaluated):
        _check(each)
    challenge, response = proof[:SCALAR_BYTES], proof[SCALAR_BYTES:]
    m, z = (_composite(public, blinded, evaluated, each) for each in (blinded, evaluated))
    left = _sum(bytes(rbcl.crypto_scalarmult_ristretto255_base(response)), _times(challenge, public))
    if _challenge(public, m, z, left, _sum(_times(response, m), _times(challenge, z))) != challenge:
        raise ReportsError("the helper's answer is not of the key that it has announced")


def finalize(data: bytes, scalar: bytes, evaluated: bytes) -> bytes:
    """The function's output for an input, from its evaluated element, which was verified."""
    inverse = bytes(rbcl.crypto_core_ristretto255_scalar_invert(scalar))
    return hashlib.sha512(_sized(data) + _sized(_times(inverse, evaluated)) + b"Finalize").digest()


def _composite(
    public: bytes, blinded: Sequence[bytes], evaluated: Sequence[bytes], of: Sequence[bytes]
) -> bytes:
    """Σ d_i · of_i, with weights d that depend on all elements."""
    seed = hashlib.sha512(_sized(public) + _sized(b"Seed-" + _CONTEXT)).digest()
    total = None
    for place, (before, after, each) in enumerate(zip(blinded, evaluated, of, strict=True)):
        transcript = _sized(seed) + place.to_bytes(2) + _sized(before) + _sized(after) + b"Composite"
        term = _times(_hash_to_scalar(transcript), each)
        total = _sum(total, term) if total else term
    if total is None:
        raise ReportsError("a request without elements")
    return total


def _challenge(public: bytes, *elements: bytes) -> bytes:
    return _hash_to_scalar(b"".join(map(_sized, (public, *elements))) + b"Challenge")


def _hash_to_scalar(data: bytes, domain: bytes = b"HashToScalar-" + _CONTEXT) -> bytes:
    return bytes(rbcl.crypto_core_ristretto255_scalar_reduce(_expanded(data, domain)))


def _expanded(data: bytes, domain: bytes) -> bytes:
    """RFC 9380, expand_message_xmd with SHA-512 to 64 bytes, which are one block."""
    domain += len(domain).to_bytes(1)
    first = hashlib.sha512(bytes(128) + data + OUTPUT_BYTES.to_bytes(2) + b"\0" + domain).digest()
    return hashlib.sha512(first + b"\1" + domain).digest()


def _sized(data: bytes) -> bytes:
    return len(data).to_bytes(2) + data


def _sum(one: bytes, other: bytes) -> bytes:
    return bytes(rbcl.crypto_core_ristretto255_add(one, other))


def _times(scalar: bytes, element: bytes) -> bytes:
    try:
        return bytes(rbcl.crypto_scalarmult_ristretto255(scalar, element))
    except RuntimeError:
        raise ReportsError("an element is not of the group, or a scalar is 0") from None


def _check(element: bytes) -> None:
    if len(element) != ELEMENT_BYTES or not any(element) or not _is_valid(element):
        raise ReportsError("an element is not of the group")


def _is_valid(element: bytes) -> bool:
    return bool(rbcl.crypto_core_ristretto255_is_valid_point(element))
