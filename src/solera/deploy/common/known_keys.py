"""The keys that a server's app needs for edges: which nodes are registered, and what the server signs with.

FOLDER/flower/keys.json is written by the commands that start a server, register keys and revoke them. The
SuperLink knows the same keys, but tells its app no more than a number of each connected node.
"""

from __future__ import annotations

import base64
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from solera.core.files import PRIVATE, write_atomically
from solera.deploy.common.authority import read_key, read_public_key
from solera.deploy.common.envelopes import member_number
from solera.privacy.secagg import public_identity
from solera.privacy.secagg.identity import Identity

_FILE = "keys.json"


class KnownKeys(BaseModel):
    """The folder of keys that the server was started with, and the public keys (DER, in base64) of nodes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    keys: Path
    nodes: tuple[str, ...] = ()
    revoked: tuple[str, ...] = ()

    @classmethod
    def read(cls, home: Path) -> KnownKeys | None:
        """What was written last; None if the server has no keys, or is of an earlier version."""
        try:
            return cls.model_validate_json((home / _FILE).read_bytes())
        except (OSError, ValidationError):
            return None

    def write(self, home: Path) -> None:
        """Replace the file."""
        write_atomically(home / _FILE, self.model_dump_json(), PRIVATE)

    def with_nodes(self, paths: list[Path]) -> KnownKeys:
        """The same with further public keys; a revoked one stays out."""
        more = [text for text in map(_text, paths) if text not in self.revoked]
        return self.model_copy(update={"nodes": tuple(dict.fromkeys([*self.nodes, *more]))})

    def without(self, paths: list[Path]) -> KnownKeys:
        """The same, with these keys revoked."""
        gone = [*map(_text, paths)]
        nodes = tuple(each for each in self.nodes if each not in gone)
        return self.model_copy(
            update={"nodes": nodes, "revoked": tuple(dict.fromkeys([*self.revoked, *gone]))}
        )

    def by_number(self) -> dict[int, bytes]:
        """All registered keys, by the numbers that members of edges have."""
        keys = [base64.b64decode(each) for each in self.nodes]
        return {member_number(key): key for key in keys}

    def signer(self) -> tuple[str, Identity]:
        """The server's certificate and its secret key."""
        return (self.keys / "server.pem").read_text(encoding="ascii"), read_key(self.keys / "server.key")


def public_key_of(path: Path) -> bytes:
    """The DER form of the key in a .pub file."""
    return public_identity(read_public_key(path))


def _text(path: Path) -> str:
    return base64.b64encode(public_key_of(path)).decode()
