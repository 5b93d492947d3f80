"""The door for invited households: a device shows the code of its invitation and the public key it has made.

A key that is let in is DIR/nodes/NAME.pub in the folder of keys. A name is given once: a second device with
the same code is turned away.
"""

from __future__ import annotations

import base64
import secrets
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_public_key
from pydantic import Field, ValidationError

from solera.core.errors import DeployError
from solera.core.files import write_atomically
from solera.core.frozen import Frozen
from solera.federation.common.authority import read_certificate
from solera.federation.common.invitation import Code
from solera.privacy.identity import SecAggError, is_signed, public_identity


class Shown(Frozen):
    """What a device shows."""

    code: Code
    key: str = Field(max_length=1000, description="public key, as OpenSSH writes it")
    proof: str = Field(max_length=200, description="the code's nonce, signed with the secret key, in base64")


class Admission:
    """Lets invited devices in."""

    def __init__(self, keys: Path) -> None:
        self._keys = keys
        self._authority = public_identity(read_certificate(keys / "ca.pem").public_key())  # type: ignore[arg-type]

    def admit(self, body: bytes) -> tuple[bytes, str]:
        """Keep the public key of a device with a valid code; returns it with the name of the household."""
        try:
            shown = Shown.model_validate_json(body)
            key = load_ssh_public_key(shown.key.encode())
            public = public_identity(key)  # type: ignore[arg-type]
            is_owner = is_signed(public, base64.b64decode(shown.proof), shown.code.challenge)
        except (ValidationError, ValueError, UnsupportedAlgorithm, SecAggError):
            raise DeployError("this is not the answer to an invitation", "update Solera") from None
        shown.code.check(self._authority)
        if not is_owner:
            raise DeployError("the key is not this device's", "update Solera")
        line = key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + f" {shown.code.name}\n".encode()
        path = self._keys / "nodes" / f"{shown.code.name}.pub"
        used = path.with_name(f".used-{shown.code.nonce}")  # stays, also if the key is removed
        whole = path.with_name(f".{shown.code.nonce}.{secrets.token_hex(4)}")
        write_atomically(whole, line, mode=0o644)
        try:
            for name in (used, path):
                _link(name, whole)  # fails if there is one, and is never seen half written
        finally:
            whole.unlink()
        return public, shown.code.name


def _link(path: Path, whole: Path) -> None:
    try:
        path.hardlink_to(whole)
    except FileExistsError:
        if path.read_bytes() != whole.read_bytes():
            raise DeployError(
                "this invitation was used already", "ask for another one, and say that this one was used"
            ) from None
