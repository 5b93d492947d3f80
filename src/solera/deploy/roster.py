"""The nodes that a node lets itself be summed up with: their public keys, signed by the authority.

    solera federation roster keys -o roster.json

A server that could name the members of a masked sum as it likes would name one node and its own inventions.
So nodes take no keys from it: they have this list, by the same way as ca.pem, and the authority's signature
on it. Whoever has ca.key can sign another list: it must not be the server's operator who has it.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from pydantic import BaseModel, ConfigDict, ValidationError

from solera.core.errors import DeployError
from solera.deploy.authority import read_certificate, read_key
from solera.privacy.secagg import SecAggError, public_identity
from solera.privacy.secagg.identity import Identity, read_identity, sign

_PURPOSE = b"solera roster 1\0"
ROSTER = "roster.json"


class Roster(BaseModel):
    """Names and public keys of nodes (DER, in base64), and a signature over both."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    nodes: dict[str, str]
    signature: str

    @property
    def keys(self) -> tuple[bytes, ...]:
        """As `public_identity` gives them."""
        return tuple(base64.b64decode(key) for key in self.nodes.values())


def make_roster(folder: Path) -> Roster:
    """Sign the keys of all nodes in a folder of keys."""
    nodes = {}
    for path in sorted((folder / "nodes").glob("*.pub")):
        try:
            identity = public_identity(load_ssh_public_key(path.read_bytes()))  # type: ignore[arg-type]
            read_identity(identity)
        except (ValueError, SecAggError):
            raise DeployError(f"{path} is no node's public key", "take it out of the folder") from None
        nodes[path.stem] = base64.b64encode(identity).decode()
    if not nodes:
        raise DeployError(f"{folder} has no keys of nodes", f"solera federation keys {folder} --nodes 3")
    signature = sign(read_key(folder / "ca.key"), _statement(nodes))
    return Roster(nodes=nodes, signature=base64.b64encode(signature).decode())


def read_roster(path: Path, ca: Path) -> Roster:
    """A list that the authority has signed; any other is refused."""
    hint = "ask the federation's authority for roster.json: solera federation roster makes it"
    try:
        roster = Roster.model_validate_json(path.read_bytes())
        signature = base64.b64decode(roster.signature, validate=True)
        for key in roster.keys:
            read_identity(key)
    except (OSError, ValueError, ValidationError, SecAggError):
        raise DeployError(f"{path} is no list of nodes", hint) from None
    authority = read_certificate(ca).public_key()
    try:
        if not isinstance(authority, EllipticCurvePublicKey):
            raise InvalidSignature
        authority.verify(signature, _statement(roster.nodes), ECDSA(SHA384()))
    except InvalidSignature:
        raise DeployError(f"{path} is not signed by the authority of {ca}", hint) from None
    return roster


def read_identity_key(path: Path) -> Identity:
    """A node's secret key."""
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key  # noqa: PLC0415

    try:
        key = load_ssh_private_key(path.read_bytes(), password=None)
        read_identity(public_identity(key))  # type: ignore[arg-type]
    except (OSError, ValueError, TypeError, SecAggError):
        raise DeployError(
            f"{path} is not a node's secret key", "give --key nodes/NAME, without .pub"
        ) from None
    return key  # type: ignore[return-value]


def _statement(nodes: dict[str, str]) -> bytes:
    return _PURPOSE + json.dumps(nodes, sort_keys=True, separators=(",", ":")).encode()
