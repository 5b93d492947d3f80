"""The door for invited households: a device shows the code of its invitation and the public key it has made.

A key that is let in is DIR/nodes/NAME.pub in the folder of keys, where `solera server start` finds it and
registers it. A name is given once: a second device with the same code is turned away.
"""

from __future__ import annotations

import base64
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_public_key
from pydantic import Field, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse

from solera.core.errors import DeployError
from solera.core.files import write_atomically
from solera.core.types import Frozen
from solera.deploy.common.authority import read_certificate
from solera.deploy.common.flower import ADMIT
from solera.deploy.common.invitation import Code
from solera.privacy.secagg import SecAggError, public_identity
from solera.privacy.secagg.identity import is_signed

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


class Shown(Frozen):
    """What a device shows."""

    code: Code
    key: str = Field(max_length=1000, description="public key, as OpenSSH writes it")
    proof: str = Field(max_length=200, description="the code's nonce, signed with the secret key, in base64")


class Admission:
    """An app that lets invited devices in, and passes everything else on."""

    def __init__(self, app: ASGIApp, keys: Path) -> None:
        self._app, self._keys = app, keys
        self._authority = public_identity(read_certificate(keys / "ca.pem").public_key())  # type: ignore[arg-type]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a device that asks to be let in."""
        if scope["path"] != ADMIT:
            await self._app(scope, receive, send)
            return
        body = await Request(scope, receive).body()
        try:
            await run_in_threadpool(self.admit, body)
            answer = JSONResponse({})
        except DeployError as error:
            answer = JSONResponse({"error": error.message, "next": error.hint}, 403)
        except OSError as error:
            said = {"error": f"the server cannot keep the key: {error.strerror}", "next": "tell its operator"}
            answer = JSONResponse(said, 503)
        await answer(scope, receive, send)

    def admit(self, body: bytes) -> None:
        """Keep the public key of a device with a valid code."""
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


def _link(path: Path, whole: Path) -> None:
    try:
        path.hardlink_to(whole)
    except FileExistsError:
        if path.read_bytes() != whole.read_bytes():
            raise DeployError(
                "this invitation was used already", "ask for another one, and say that this one was used"
            ) from None
