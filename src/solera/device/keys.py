"""A publisher's keys: Ed25519, in PEM files as every other tool writes them."""

from __future__ import annotations

import os
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from solera.core.errors import BundleError


def make_keys(stem: Path) -> tuple[Path, Path]:
    """Write STEM.key, for the publisher alone, and STEM.pub, for everybody."""
    secret, public = Path(f"{stem}.key"), Path(f"{stem}.pub")
    for path in (secret, public):
        if path.exists():
            raise BundleError(
                f"{path} already exists", "give another name: an overwritten key cannot be recovered"
            )
    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        with os.fdopen(os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(pem)
        public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    except OSError as error:
        raise BundleError(f"{stem} cannot be written: {error.strerror}", "give another -o") from None
    return secret, public


def read_secret(path: Path) -> Ed25519PrivateKey:
    """A publisher's .key file."""
    wrong = BundleError(f"{path} is not a secret Ed25519 key", "solera bundle keygen -o publisher makes one")
    try:
        key = load_pem_private_key(_read(path), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise wrong from None
    if not isinstance(key, Ed25519PrivateKey):
        raise wrong
    return key


def read_public(path: Path) -> bytes:
    """The 32 bytes of a .pub file."""
    wrong = BundleError(f"{path} is not a public Ed25519 key", "ask the publisher for the .pub file")
    try:
        key = load_pem_public_key(_read(path))
    except (ValueError, UnsupportedAlgorithm):
        raise wrong from None
    if not isinstance(key, Ed25519PublicKey):
        raise wrong
    return bytes(key.public_bytes_raw())


def sign(key: Ed25519PrivateKey, message: bytes) -> bytes:
    """Sign a message. The result is the public key followed by the signature."""
    return bytes(key.public_key().public_bytes_raw()) + bytes(key.sign(message))


def is_signed(public: bytes, signature: bytes, message: bytes) -> bool:
    """Whether the owner of the key has signed the message."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except InvalidSignature:
        return False
    return True


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BundleError(f"{path} cannot be read: {error.strerror}", "check the path of the key") from None
