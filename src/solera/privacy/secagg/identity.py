"""The long-term keys by which nodes know each other: Ed25519, or ECDSA over P-384 with SHA-384."""

from __future__ import annotations

from functools import lru_cache

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    SECP384R1,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_public_key

from solera.privacy.secagg.errors import SecAggError

Identity = Ed25519PrivateKey | EllipticCurvePrivateKey
PublicIdentity = Ed25519PublicKey | EllipticCurvePublicKey

MAX_SIGNATURE_BYTES = 104  # of P-384 in DER; Ed25519 has 64
MAX_KEY_BYTES = 128


def new_identity() -> Identity:
    """A key of P-384, as deployed nodes have."""
    return generate_private_key(SECP384R1())


def public_identity(key: Identity | PublicIdentity) -> bytes:
    """Public key of a node as in the roster: DER SubjectPublicKeyInfo."""
    public = key.public_key() if isinstance(key, Identity) else key
    return bytes(public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))


@lru_cache(maxsize=4096)
def read_identity(der: bytes) -> PublicIdentity:
    """A public key from a roster."""
    wrong = SecAggError("a key of the roster is neither Ed25519 nor P-384", "use public_identity(key)")
    try:
        key = load_der_public_key(der)
    except (ValueError, UnsupportedAlgorithm):
        raise wrong from None
    if isinstance(key, Ed25519PublicKey):
        return key
    if isinstance(key, EllipticCurvePublicKey) and isinstance(key.curve, SECP384R1):
        return key
    raise wrong


def sign(key: Identity, statement: bytes) -> bytes:
    """Sign a message."""
    if isinstance(key, Ed25519PrivateKey):
        return bytes(key.sign(statement))
    return bytes(key.sign(statement, ECDSA(SHA384())))


def is_signed(der: bytes, signature: bytes, statement: bytes) -> bool:
    """Whether the owner of the public key has signed."""
    key = read_identity(der)
    try:
        if isinstance(key, Ed25519PublicKey):
            key.verify(signature, statement)
        else:
            key.verify(signature, statement, ECDSA(SHA384()))
    except InvalidSignature:
        return False
    return True
