"""Orders and answers that pass through an edge, which can neither change the one nor read the other.

The server signs every order for its member with the key of its certificate, so a member needs nothing but the
authority of the federation, ca.pem. With the order comes a key of this exchange alone. The member signs its
answer, together with the order that it answers, and seals both for that key. An answer therefore fits one
order of one exchange to one member, and none of them can be exchanged, changed or used again.

An order is signed, not sealed: an edge sees what its members are sent.
"""

from __future__ import annotations

import base64
import hashlib
import json
from datetime import UTC, datetime
from functools import lru_cache

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from pydantic import BaseModel, ConfigDict, Field

from solera.deploy.common.frames import join_frames, split_frames
from solera.deploy.common.messages import from_bytes, to_bytes
from solera.deploy.common.protocol import Packet, Reason, RefusalError
from solera.privacy.secagg import SecAggError, public_identity
from solera.privacy.secagg.identity import Identity, is_signed, sign
from solera.privacy.secagg.primitives import agree, derive, new_secret, private_key, public_key, seal, unseal

_ORDER, _ANSWER = b"solera order through an edge 1\0", b"solera answer through an edge 1\0"
_KEY_BYTES = 32


def member_number(key: bytes) -> int:
    """The number that server and edge know a member by, from its public key (DER)."""
    return int.from_bytes(hashlib.sha256(key).digest()[:8]) >> 1


class Stamp(BaseModel):
    """What an order comes with: the server's certificate, the key to seal for, and when it was sent."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    certificate: str = Field(max_length=20_000)
    key: str = Field(max_length=100, description="X25519, in base64")
    at: int = Field(ge=0, lt=2**63, description="in milliseconds; every later order has a larger one")

    def request(self, kind: str, member: int, packet: Packet) -> bytes:
        """What the server signs of an order, and what the answer names it by."""
        said = json.dumps([kind, member, self.key, self.at, packet.digest])
        return _ORDER + hashlib.sha256(said.encode()).digest()


class Exchange:
    """The server's side of one exchange of messages with members of edges."""

    def __init__(self, certificate: str, key: Identity, at: int) -> None:
        self._identity, self._secret = key, new_secret()
        shared = base64.b64encode(public_key(self._secret)).decode()
        self.stamp = Stamp(certificate=certificate, key=shared, at=at)
        self._requests: dict[int, bytes] = {}

    def order(self, kind: str, member: int, packet: Packet) -> str:
        """The signature, in base64, of an order to a member."""
        request = self._requests[member] = self.stamp.request(kind, member, packet)
        return base64.b64encode(sign(self._identity, request)).decode()

    def is_asked(self, member: int) -> bool:
        """Whether the member has an order and has not answered it."""
        return member in self._requests

    def opened(self, member: int, key: bytes, box: bytes) -> Packet:
        """The answer in a box, if the member with this public key has made it for its order."""
        request = self._requests.pop(member)
        try:
            shared = agree(private_key(self._secret), box[:_KEY_BYTES])
            signature, text = split_frames(unseal(_box_key(shared, request), box[_KEY_BYTES:]))
            if not is_signed(key, signature, _statement(request, text)):
                raise SecAggError("it is not signed by the member")
        except (SecAggError, ValueError) as error:
            raise RefusalError(Reason.EDGE, f"the member has not made this answer: {error}"[:200]) from None
        return from_bytes(text)


class Seals:
    """A member's side: it believes a server with a certificate of its federation's authority."""

    def __init__(self, key: Identity, authority: x509.Certificate) -> None:
        self._key, self._authority = key, authority
        self.number = member_number(public_identity(key))

    def check(self, stamp: Stamp, signature: str, kind: str, packet: Packet) -> bytes:
        """Refuse an order that the server has not signed for this member; returns what it is named by."""
        request = stamp.request(kind, self.number, packet)
        try:
            signer = _signer(stamp.certificate, self._authority)
            if not is_signed(signer, base64.b64decode(signature, validate=True), request):
                raise SecAggError("the signature is wrong")
        except (SecAggError, ValueError) as error:
            raise RefusalError(
                Reason.EDGE, f"the server has not sent this order to this node: {error}"[:200]
            ) from None
        return request

    def sealed(self, stamp: Stamp, request: bytes, reply: Packet) -> bytes:
        """A box that the server alone can open."""
        text, secret = to_bytes(reply), new_secret()
        signature = sign(self._key, _statement(request, text))
        shared = agree(private_key(secret), base64.b64decode(stamp.key))
        box = seal(_box_key(shared, request), join_frames([signature, text]))
        return public_key(secret) + box


def _statement(request: bytes, text: bytes) -> bytes:
    return _ANSWER + request + hashlib.sha256(text).digest()


def _box_key(shared: bytes, request: bytes) -> bytes:
    return derive(shared, _ANSWER + request)


@lru_cache(maxsize=64)
def _certificate(pem: str, authority: x509.Certificate) -> tuple[bytes, datetime]:
    """The key of a certificate that the authority has issued, and until when it is valid."""
    try:
        found = x509.load_pem_x509_certificate(pem.encode())
        found.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        raise ValueError("the certificate is not one of the federation's authority") from None
    key = found.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ValueError("the certificate has another kind of key")
    return public_identity(key), found.not_valid_after_utc


def _signer(pem: str, authority: x509.Certificate) -> bytes:
    key, until = _certificate(pem, authority)
    if until < datetime.now(UTC):
        raise ValueError(f"the server's certificate expired on {until:%Y-%m-%d}")
    return key
