"""The roster: a signed list of the public keys of nodes that may be summed together.

    solera federation roster keys -o roster.json

A server that could name the members of a masked sum would name one node and inventions of its own. So nodes
take no keys from it: they have this list, and the public key of whoever signs it. That key, roster.key, is
made beside the others and need not be the operator's: whoever has it decides who is a node.

Every list names the digests of all lists before it. A node that has one list takes another only if that
continues it. The digest of the list is in the terms of every masked round, so members that have different
lists are in no round together: nobody can be shown a list of their own.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from cryptography.hazmat.primitives.serialization import (
    load_pem_private_key,
    load_pem_public_key,
    load_ssh_private_key,
    load_ssh_public_key,
)
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from solera.core.errors import DeployError
from solera.federation.common.authority import ROSTER_KEY, ROSTER_PUBLIC
from solera.privacy.identity import Identity, SecAggError, is_signed, public_identity, read_identity, sign

ROSTER = "roster.json"
_PURPOSE = b"solera roster 2\0"
_MAKE = "`solera federation roster DIR` makes one"
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Roster(BaseModel):
    """Names and public keys of nodes (DER, in base64), and a signature over all of it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[2] = 2
    former: tuple[Digest, ...] = Field(default=(), max_length=10_000, description="oldest first")
    nodes: dict[str, str] = Field(max_length=100_000)
    signature: str = ""

    @field_validator("nodes")
    @classmethod
    def _are_keys(cls, nodes: dict[str, str]) -> dict[str, str]:
        for name, key in nodes.items():
            try:
                read_identity(base64.b64decode(key, validate=True))
            except (SecAggError, ValueError):
                raise ValueError(f"the key of {name!r} is not valid") from None
        if len(set(nodes.values())) != len(nodes):
            raise ValueError("a key is listed twice")
        return nodes

    @property
    def digest(self) -> str:
        """Of the list and of all lists before it."""
        return hashlib.sha256(self._statement).hexdigest()

    def continues(self, other: Roster) -> bool:
        """Whether this is the other list, or a later one that comes after it."""
        place = len(other.former)
        return self.digest == other.digest or (
            len(self.former) > place and self.former[place] == other.digest
        )

    def signed(self, key: Identity) -> Roster:
        """The same with a signature."""
        made = base64.b64encode(sign(key, self._statement)).decode()
        return self.model_copy(update={"signature": made})

    def is_signed_by(self, key: bytes) -> bool:
        """Whether the owner of that public key (DER) has signed it."""
        try:
            return is_signed(key, base64.b64decode(self.signature, validate=True), self._statement)
        except ValueError:
            return False

    @property
    def _statement(self) -> bytes:
        content = self.model_dump(mode="json", exclude={"signature"})
        return _PURPOSE + json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def make_roster(folder: Path, former: Path | None = None) -> Roster:
    """Sign the keys of all nodes in a folder of keys; a list that is at `former` is continued."""
    nodes: dict[str, str] = {}
    for path in sorted((folder / "nodes").glob("*.pub")):
        try:
            identity = public_identity(load_ssh_public_key(path.read_bytes()))  # type: ignore[arg-type]
            read_identity(identity)
        except (ValueError, SecAggError):
            raise DeployError(f"{path} is not a node's public key", "remove it from the folder") from None
        key = base64.b64encode(identity).decode()
        if key in nodes.values():
            raise DeployError(f"{path} is the key of another node too", "remove one of both from the folder")
        nodes[path.stem] = key
    if not nodes:
        raise DeployError(f"{folder} contains no node keys", f"solera federation keys {folder} --nodes 3")
    before: tuple[str, ...] = ()
    if former is not None and former.exists():
        old = read_roster(former, read_roster_key(folder / ROSTER_PUBLIC))
        if old.nodes == nodes:
            return old
        before = (*old.former, old.digest)
    return Roster(former=before, nodes=nodes).signed(_secret_key(folder / ROSTER_KEY))


def read_roster(path: Path, key: bytes) -> Roster:
    """A list that the owner of the key has signed; any other is refused."""
    try:
        return parse_roster(path.read_text(encoding="utf-8"), key)
    except OSError as error:
        raise DeployError(f"{path} cannot be read: {error.strerror}", _MAKE) from None
    except DeployError as error:
        raise DeployError(f"{path}: {error.message}", error.hint) from None


def parse_roster(text: str, key: bytes) -> Roster:
    """The public key that lists are signed with, from PEM, as DER."""
    try:
        roster = Roster.model_validate_json(text)
    except ValidationError:
        raise DeployError("this is not a list of nodes that this version can read", _MAKE) from None
    if not roster.is_signed_by(key):
        raise DeployError(
            "the list of nodes is not signed with the roster's key",
            "ask whoever signs the federation's roster for the list and for roster.pub",
        )
    return roster


def read_roster_key(path: Path) -> bytes:
    """The public key that lists are signed with, as DER."""
    try:
        return parse_roster_key(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, DeployError):
        raise DeployError(
            f"{path} is not the public key of a roster",
            "give roster.pub, as `solera federation keys` made it",
        ) from None


def parse_roster_key(text: str) -> bytes:
    """The public key that lists are signed with, from PEM, as DER."""
    try:
        identity = public_identity(load_pem_public_key(text.encode()))  # type: ignore[arg-type]
        read_identity(identity)
    except (ValueError, SecAggError):
        raise DeployError("this is not the public key of a roster", "ask for another invitation") from None
    return identity


def read_identity_key(path: Path) -> Identity:
    """A node's secret key."""
    hint = "give --key nodes/NAME, without .pub"
    return _read_secret(path, load_ssh_private_key, "a node's secret key", hint)


def _secret_key(path: Path) -> Identity:
    hint = "solera federation keys DIR makes one"
    return _read_secret(path, load_pem_private_key, "the secret key of a roster", hint)


def _read_secret(path: Path, load: Callable[..., Any], what: str, hint: str) -> Identity:
    try:
        key: Identity = load(path.read_bytes(), password=None)
        read_identity(public_identity(key))
    except (OSError, ValueError, TypeError, SecAggError):
        raise DeployError(f"{path} is not {what}", hint) from None
    return key
