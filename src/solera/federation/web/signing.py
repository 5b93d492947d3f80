"""Requests signed by devices: a strict profile of HTTP Message Signatures (RFC 9421).

Every request covers its method, its path and the digest of its body (RFC 9530), with the time of the device
and a number that grows. The key is ECDSA over P-256; it is named by itself, so that nothing has to be looked
up before the signature is checked. The tag names the federation: the fingerprint of its authority's
certificate. Only this one form is taken:

    Content-Digest: sha-256=:...:
    Signature-Input: sig=("@method" "@path" "content-
    digest");created=TIME;nonce="N";keyid="KEY";alg="...";tag="..." Signature: sig=:...:
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from functools import lru_cache
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_der_public_key

from solera.privacy.identity import public_identity

WINDOW = 300  # seconds by which a device's clock may be wrong; the refusal tells it the server's
_HASH, _HALF = ec.ECDSA(SHA256()), 32  # bytes of each number of a signature
_INPUT = re.compile(
    r'sig=(\("@method" "@path" "content-digest"\);created=(\d{1,12});nonce="(\d{1,18})"'
    r';keyid="([A-Za-z0-9_-]{100,200})";alg="ecdsa-p256-sha256";tag="([A-Za-z0-9_-]{1,64})")'
)


class Signed(NamedTuple):
    """What a valid signature says."""

    key: bytes  # DER
    created: int
    nonce: int
    digest: bytes  # SHA-256 that the body must have

    @property
    def number(self) -> int:
        """The device's number."""
        return device_number(self.key)


def device_number(key: bytes) -> int:
    """A device is the hash of its public key (DER), everywhere: 63 bits of SHA-256."""
    return int.from_bytes(hashlib.sha256(key).digest()[:8]) >> 1


def signed_headers(
    key: ec.EllipticCurvePrivateKey,
    method: str,
    path: str,
    body: bytes,
    *,
    tag: str,
    created: int,
    nonce: int,
) -> dict[str, str]:
    """The headers of one request."""
    digest = f"sha-256=:{base64.b64encode(hashlib.sha256(body).digest()).decode()}:"
    params = (
        f'("@method" "@path" "content-digest");created={created};nonce="{nonce}"'
        f';keyid="{_name_of(key)}";alg="ecdsa-p256-sha256";tag="{tag}"'
    )
    r, s = decode_dss_signature(key.sign(_base(method, path, digest, params), _HASH))
    signature = base64.b64encode(r.to_bytes(_HALF) + s.to_bytes(_HALF)).decode()
    return {"content-digest": digest, "signature-input": f"sig={params}", "signature": f"sig=:{signature}:"}


def read_signature(
    method: str, path: str, digest: str, given: str, signature: str, *, tag: str
) -> Signed | None:
    """What the headers of a request say; None if they have another form or another signature."""
    found = _INPUT.fullmatch(given)
    if found is None or found[5] != tag:
        return None
    try:
        der = base64.urlsafe_b64decode(found[4] + "=" * (-len(found[4]) % 4))
        raw = base64.b64decode(_between(signature, "sig=:"), validate=True)
        body = base64.b64decode(_between(digest, "sha-256=:"), validate=True)
        if len(raw) != 2 * _HALF or len(body) != hashlib.sha256().digest_size:
            return None
        numbers = encode_dss_signature(int.from_bytes(raw[:_HALF]), int.from_bytes(raw[_HALF:]))
        _public(der).verify(numbers, _base(method, path, digest, found[1]), _HASH)
    except (binascii.Error, ValueError, InvalidSignature, UnsupportedAlgorithm):
        return None
    return Signed(der, int(found[2]), int(found[3]), body)


def _between(text: str, start: str) -> str:
    if not text.startswith(start) or not text.endswith(":") or len(text) <= len(start):
        raise ValueError
    return text[len(start) : -1]


def _base(method: str, path: str, digest: str, params: str) -> bytes:
    lines = (f'"@method": {method}', f'"@path": {path}', f'"content-digest": {digest}')
    return "\n".join((*lines, f'"@signature-params": {params}')).encode()


@lru_cache(maxsize=4096)
def _public(der: bytes) -> ec.EllipticCurvePublicKey:
    key = load_der_public_key(der)
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ValueError("not a key of P-256")
    if public_identity(key) != der:  # one form of a key is one device
        raise ValueError("not the form that everybody writes")
    return key


@lru_cache(maxsize=16)
def _name_of(key: ec.EllipticCurvePrivateKey) -> str:
    return base64.urlsafe_b64encode(public_identity(key)).decode().rstrip("=")
