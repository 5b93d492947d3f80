"""An invitation: all that one household needs to take part in a federation, in one file or one link.

It holds no key of anybody. The device makes its own key, and shows its public half to the server with the
invitation's code. A code is signed with ca.key, names the household, works once and only for some days.
What the federation asks for is in the invitation as well: the device holds the server to it.
"""

from __future__ import annotations

import base64
import binascii
import json
import secrets
import time
import zlib
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError

from solera.core.errors import DeployError
from solera.core.frozen import Frozen
from solera.device.policy import Agreement
from solera.federation.common.address import Address
from solera.privacy.identity import Identity, is_signed, sign

SCHEME = "solera-invitation:"
LONGEST = 1_000_000  # characters of an invitation, unpacked
DAY = 86_400
_PURPOSE, _PROOF = b"solera invitation 2\0", b"solera admission 1\0"
_AGAIN = "ask for the invitation again; `solera federation invite` makes it"
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]  # of a file too


class Code(Frozen):
    """Lets one household show its key to the server."""

    name: Name = Field(description="of the household's key in the folder of keys")
    expires: int = Field(description="seconds since 1970")
    nonce: str = Field(pattern="^[0-9a-f]{32}$")
    signature: str = Field(default="", max_length=200, description="by the authority, in base64")

    @classmethod
    def new(cls, name: str, days: float, authority: Identity, now: float | None = None) -> Code:
        """A code that works once, for so many days."""
        try:
            made = cls(name=name, expires=int((now or time.time()) + days * DAY), nonce=secrets.token_hex(16))
        except ValidationError:
            raise DeployError(
                f"{name!r} cannot be the name of a household", "use letters, digits, - and _, at most 64"
            ) from None
        signature = base64.b64encode(sign(authority, made._statement)).decode()
        return made.model_copy(update={"signature": signature})

    def check(self, authority: bytes, now: float | None = None) -> None:
        """Refuse a code that the authority (public key, DER) has not signed, and one that is too old."""
        try:
            signature = base64.b64decode(self.signature, validate=True)
        except binascii.Error:
            signature = b""
        if not is_signed(authority, signature, self._statement):
            raise DeployError("this code is not the federation's", _AGAIN)
        self.check_age(now)

    def check_age(self, now: float | None = None) -> None:
        """Refuse a code that is too old."""
        if (now or time.time()) > self.expires:
            raise DeployError("this invitation has expired", _AGAIN)

    @property
    def challenge(self) -> bytes:
        """What a device signs with its key to show that the key is its own."""
        return _PROOF + self.nonce.encode()

    @property
    def _statement(self) -> bytes:
        content = self.model_dump(exclude={"signature"})
        return _PURPOSE + json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


class Invitation(Frozen):
    """Where the federation is, how to know it, and what it asks for."""

    version: Literal[2] = 2
    federation: str = Field(max_length=100, description="its name, for people")
    server: str = Field(max_length=300, description="HOST:PORT")
    ca: str = Field(description="certificate of the federation's authority, PEM")
    code: Code
    roster_key: str | None = Field(
        default=None, description="public key that lists of nodes are signed with, PEM; for masked rounds"
    )
    asked: Agreement

    @property
    def address(self) -> Address:
        """The server's."""
        return Address.parse(self.server)

    def link(self) -> str:
        """The invitation as one line, for a message or a QR code."""
        packed = zlib.compress(self.model_dump_json(exclude_none=True).encode(), 9)
        return SCHEME + base64.urlsafe_b64encode(packed).decode().rstrip("=")

    @classmethod
    def parse(cls, text: str) -> Self:
        """An invitation from the text of a file or from a link."""
        text = text.strip()
        if text.startswith(SCHEME):
            text = _unpacked(text.removeprefix(SCHEME))
        try:
            found = cls.model_validate_json(text)
        except ValidationError:
            raise DeployError("this is not an invitation that this version can read", _AGAIN) from None
        if found.asked.masked and found.roster_key is None:
            raise DeployError(
                "this invitation promises masked sums, but does not say who signs the list of devices",
                "ask for an invitation with --masked, or for one that does not promise it",
            )
        Address.parse(found.server)
        return found

    @classmethod
    def read(cls, given: str) -> Self:
        """An invitation from a file. A link is not taken: other users of the machine see command lines."""
        if given.startswith(SCHEME):
            raise DeployError(
                "a link on a command line can be read by other users of this machine",
                "leave it out, and paste it when you are asked; or give the file",
            )
        try:
            with Path(given).open(encoding="utf-8") as file:
                return cls.parse(file.read(LONGEST + 1))
        except (OSError, UnicodeDecodeError):
            raise DeployError(f"{given} cannot be read", _AGAIN) from None


def _unpacked(code: str) -> str:
    """The text behind the scheme of a link. One that unpacks to more than an invitation is refused."""
    try:
        packed = base64.b64decode(code + "=" * (-len(code) % 4), altchars=b"-_", validate=True)
        unpacker = zlib.decompressobj()
        text = unpacker.decompress(packed, LONGEST)
        if unpacker.unconsumed_tail or not unpacker.eof:
            raise ValueError
        return text.decode()
    except (binascii.Error, zlib.error, ValueError):
        raise DeployError("this link is not a whole invitation", _AGAIN) from None
