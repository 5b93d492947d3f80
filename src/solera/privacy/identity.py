"""The long-term keys by which nodes know each other: Ed25519, or ECDSA over P-256 or P-384.

A signature over P-256 is checked about ten times as fast as one over P-384. Every node checks one of every
other node twice in a round, so new nodes get keys of P-256, which is as strong as the protocol's X25519.
"""

from __future__ import annotations

from functools import lru_cache

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    SECP256R1,
    SECP384R1,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256, SHA384
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_public_key

from solera.core.errors import SoleraError

Identity = Ed25519PrivateKey | EllipticCurvePrivateKey
PublicIdentity = Ed25519PublicKey | EllipticCurvePublicKey

MAX_SIGNATURE_BYTES = 104  # of P-384 in DER; Ed25519 has 64
MAX_KEY_BYTES = 128
_ECDSA = {SECP256R1.name: ECDSA(SHA256()), SECP384R1.name: ECDSA(SHA384())}


class SecAggError(SoleraError):
    """A refused message, state, key or request, with the reason. No secret was revealed."""


def new_identity() -> EllipticCurvePrivateKey:
    """A key of P-256, as new nodes have."""
    return generate_private_key(SECP256R1())


def public_identity(key: Identity | PublicIdentity) -> bytes:
    """Public key of a node as in the roster: DER SubjectPublicKeyInfo."""
    public = key.public_key() if isinstance(key, Identity) else key
    return bytes(public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))


@lru_cache(maxsize=4096)
def read_identity(der: bytes) -> PublicIdentity:
    """A public key from a roster."""
    wrong = SecAggError(
        "a key of the roster is not one of Ed25519, P-256 or P-384", "use public_identity(key)"
    )
    try:
        key = load_der_public_key(der)
    except (ValueError, UnsupportedAlgorithm):
        raise wrong from None
    if isinstance(key, Ed25519PublicKey):
        return key
    if isinstance(key, EllipticCurvePublicKey) and key.curve.name in _ECDSA:
        return key
    raise wrong


def sign(key: Identity, statement: bytes) -> bytes:
    """Sign a message."""
    if isinstance(key, Ed25519PrivateKey):
        return bytes(key.sign(statement))
    return bytes(key.sign(statement, _ECDSA[key.curve.name]))


def is_signed(der: bytes, signature: bytes, statement: bytes) -> bool:
    """Whether the owner of the public key has signed."""
    key = read_identity(der)
    try:
        if isinstance(key, Ed25519PublicKey):
            key.verify(signature, statement)
        else:
            key.verify(signature, statement, _ECDSA[key.curve.name])
    except InvalidSignature:
        return False
    return True
