"""The keys that a server's app needs for edges: which nodes are registered, and what the server signs with.

FOLDER/flower/keys.json is written by the commands that start a server, register keys and revoke them. The
SuperLink knows the same keys, but tells its app no more than a number of each connected node.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from pathlib import Path

from filelock import FileLock
from pydantic import BaseModel, ConfigDict, ValidationError

from solera.core.errors import DeployError
from solera.core.files import PRIVATE, write_atomically
from solera.deploy.common.authority import read_key, read_public_key
from solera.deploy.common.envelopes import member_number
from solera.privacy.secagg import public_identity
from solera.privacy.secagg.identity import Identity

KEYS = "keys.json"


class KnownKeys(BaseModel):
    """The folder of keys that the server was started with, and the public keys (DER, in base64) of nodes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    keys: Path
    nodes: tuple[str, ...] = ()
    revoked: tuple[str, ...] = ()

    @classmethod
    def read(cls, home: Path) -> KnownKeys | None:
        """What was written last; None if the server has no keys."""
        path = home / KEYS
        try:
            return cls.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            raise DeployError(
                f"{path}, which names the revoked keys, cannot be read: {error}",
                "restore it from a backup; or delete it, start the server, and revoke those keys again",
            ) from None

    @classmethod
    def change(
        cls, home: Path, how: Callable[[KnownKeys], KnownKeys], keys: Path | None = None
    ) -> KnownKeys | None:
        """Change the file, if there is one. With the folder of keys, it is made, or gets that folder."""
        with FileLock(home / "keys.lock", mode=PRIVATE):
            found = cls.read(home)
            if keys is not None:
                found = found.model_copy(update={"keys": keys}) if found else cls(keys=keys)
            if found is not None:
                found = how(found)
                write_atomically(home / KEYS, found.model_dump_json(), PRIVATE)
            return found

    def with_nodes(self, paths: list[Path]) -> KnownKeys:
        """The same with further public keys; a revoked one stays out."""
        more = [text for text in map(text_of, paths) if text not in self.revoked]
        return self.model_copy(update={"nodes": tuple(dict.fromkeys([*self.nodes, *more]))})

    def revoking(self, gone: Iterable[str]) -> KnownKeys:
        """The same, with these keys revoked."""
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


def text_of(path: Path) -> str:
    """The key in a .pub file, as the lists here have it."""
    return base64.b64encode(public_key_of(path)).decode()
