"""An invitation: all that one household needs to take part in a federation, in one file or one link.

It holds the household's own secret key, so every household gets another one, over a channel that nobody else
reads. What the federation asks for is in it as well, to be read before anybody agrees. It is an announcement
and no promise of the server: the device's policy is what holds (`solera.device.policy`).
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, ValidationError

from solera.core.errors import DeployError
from solera.core.frozen import Frozen
from solera.deploy.common.flower import Address

SCHEME = "solera-invitation:"
LONGEST = 1_000_000  # characters of an invitation, unpacked
_AGAIN = "ask for the invitation again; `solera federation invite` makes it"


class Asked(Frozen):
    """What the federation asks a device to accept."""

    masked: bool = Field(description="uploads are masked: the server sees only sums over many devices")
    least_nodes: int | None = Field(default=None, ge=2, description="devices in such a sum, at the least")
    epsilon: float | None = Field(default=None, gt=0, description="ε spent over all rounds")

    def sentences(self) -> Iterator[str]:
        """The same in words, for the person who decides."""
        if not self.masked:
            yield "The server sees what your device uploads. An upload can show which items you have."
        elif self.least_nodes:
            yield f"Your upload is hidden in a sum over at least {self.least_nodes} devices."
        else:
            yield "Your upload is hidden in a sum over several devices."
        if self.epsilon:
            yield f"Noise is added to what is learned: ε = {self.epsilon:g} over all rounds."
        else:
            yield "No noise is added to what is learned."


class Invitation(Frozen):
    """Where the federation is, how to know it, and the household's own key."""

    version: Literal[1] = 1
    federation: str = Field(max_length=100, description="its name, for people")
    server: str = Field(description="HOST:PORT")
    ca: str = Field(description="certificate of the federation's authority, PEM")
    node: str = Field(max_length=100, description="name of the household's key")
    key: str = Field(description="the household's secret key, as OpenSSH writes it")
    roster: str | None = Field(default=None, description="signed list of nodes, for masked rounds")
    roster_key: str | None = Field(default=None, description="public key that the list is signed with")
    asked: Asked

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
        Address.parse(found.server)
        return found

    @classmethod
    def read(cls, given: str) -> Self:
        """An invitation from a link, or from a file with it."""
        if given.startswith(SCHEME):
            return cls.parse(given)
        try:
            with Path(given).open(encoding="utf-8") as file:
                return cls.parse(file.read(LONGEST + 1))
        except (OSError, UnicodeDecodeError):
            raise DeployError(
                f"{given} is neither a link nor a readable file", f"a link begins with {SCHEME}"
            ) from None


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
