"""X25519, HKDF-SHA256, ChaCha20 and AES-256-GCM, all of them from the package cryptography."""

from __future__ import annotations

import hashlib
import os

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from solera.privacy.identity import SecAggError

Ring = NDArray[np.uint32] | NDArray[np.uint64]  # integers modulo 2^32 or 2^64

SECRET_BYTES = 32
NONCE_BYTES, TAG_BYTES = 12, 16
_CHUNK = 1 << 18  # bytes of the key stream at a time: they stay in the processor's cache
_ZEROS = bytes(_CHUNK)


def new_secret() -> bytes:
    """32 bytes from the operating system."""
    return os.urandom(SECRET_BYTES)


def private_key(secret: bytes) -> X25519PrivateKey:
    """32 random bytes as a key."""
    return X25519PrivateKey.from_private_bytes(secret)


def public_key(secret: bytes) -> bytes:
    """Public key of an X25519 secret."""
    return bytes(private_key(secret).public_key().public_bytes_raw())


def agree(key: X25519PrivateKey, public: bytes) -> bytes:
    """The X25519 secret of both; a public key that forces a known one is refused."""
    try:
        return bytes(key.exchange(X25519PublicKey.from_public_bytes(public)))
    except ValueError:
        raise SecAggError("a public key is invalid or has low order") from None


def derive(secret: bytes, purpose: bytes) -> bytes:
    """A key of 32 bytes for one purpose alone: HKDF-SHA256 without salt."""
    return bytes(HKDF(SHA256(), length=32, salt=None, info=purpose).derive(secret))


def commitment(seed: bytes, purpose: bytes) -> bytes:
    """SHA-256 of a random seed, by which it is known again and which tells nothing of it."""
    return hashlib.sha256(purpose + seed).digest()


def seal(key: bytes, plain: bytes) -> bytes:
    """AES-256-GCM under a random nonce, which comes first."""
    nonce = os.urandom(NONCE_BYTES)
    return nonce + bytes(AESGCM(key).encrypt(nonce, plain, None))


def unseal(key: bytes, box: bytes) -> bytes:
    """Decrypt a sealed box. A modified box is refused."""
    try:
        return bytes(AESGCM(key).decrypt(box[:NONCE_BYTES], box[NONCE_BYTES:], None))
    except (InvalidTag, ValueError):
        raise SecAggError("a box was sealed with another key, or changed in transit") from None


def mask(values: Ring, key: bytes, *, subtract: bool = False) -> None:
    """Add the mask of a key to integers modulo 2^32 or 2^64, in place.

    The mask is the ChaCha20 key stream (RFC 8439, counter and nonce 0) of all 32 bytes of the key, read as
    little-endian integers. A key makes one mask and nothing else, so the nonce may be fixed.
    """
    stream = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()
    step = _CHUNK // values.itemsize
    buffer = np.empty(_CHUNK, np.uint8)
    for begin in range(0, len(values), step):
        part = values[begin : begin + step]
        stream.update_into(_ZEROS[: part.nbytes], buffer.data)
        drawn = buffer[: part.nbytes].view(part.dtype)
        if subtract:
            part -= drawn
        else:
            part += drawn
