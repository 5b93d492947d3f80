"""The invitation that a device has accepted: files in its folder, from which the node starts.

DEVICE/federation/invitation.json   federation, server and what it asks for, without keys
DEVICE/federation/ca.pem, node      the authority's certificate and the household's secret key
DEVICE/federation/roster.json, .pub the signed list of nodes, if there is one
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from solera.core.errors import DeployError
from solera.core.files import PRIVATE, write_atomically
from solera.core.frozen import Frozen
from solera.deploy.common.authority import ROSTER_PUBLIC
from solera.deploy.common.flower import Address
from solera.deploy.common.invitation import Asked, Invitation
from solera.deploy.common.private_files import private_folder
from solera.deploy.secure.roster import ROSTER, parse_roster, read_identity_key, read_roster_key
from solera.device.device import Device
from solera.device.ledger import JOINED, Ledger
from solera.device.policy import Policy

FOLDER, _TERMS = "federation", "invitation.json"


class Terms(Frozen):
    """What is kept of an invitation for people to read."""

    federation: str
    server: str
    node: str
    asked: Asked


@dataclass(frozen=True)
class Accepted:
    """An accepted invitation and its files."""

    terms: Terms
    folder: Path

    @property
    def ca(self) -> Path:
        """The authority's certificate."""
        return self.folder / "ca.pem"

    @property
    def key(self) -> Path:
        """The household's secret key."""
        return self.folder / "node"

    @property
    def address(self) -> Address:
        """The server's."""
        return Address.parse(self.terms.server, self.ca.resolve())


def accept(device: Device, invitation: Invitation) -> Accepted:
    """Keep an invitation in a device's folder, and agree to the federation that asks next.

    Another invitation that was accepted before has to go first. The same one again changes nothing for a
    device that takes part.
    """
    ledger, is_known = Ledger(device.store), accepted(device.path) is not None
    found = _keep(device.path, invitation)
    if not is_known or all(each["standing"] != JOINED for each in ledger.federations()):
        ledger.join_next()
    return found


def _keep(device: Path, invitation: Invitation) -> Accepted:
    there = accepted(device)
    if there is not None and there.terms != _terms(invitation):
        raise DeployError(
            f"this device takes part in {there.terms.federation!r} at {there.terms.server}",
            f"leave it first: solera node leave {device}",
        )
    folder = private_folder(device / FOLDER)
    files = {"ca.pem": invitation.ca, "node": invitation.key}
    if invitation.roster is not None:
        files |= {ROSTER: invitation.roster, ROSTER_PUBLIC: invitation.roster_key or ""}
    try:
        for name, text in files.items():
            write_atomically(folder / name, text, mode=PRIVATE)
        read_identity_key(folder / "node")
        if invitation.roster is not None:
            parse_roster(invitation.roster, read_roster_key(folder / ROSTER_PUBLIC))
        write_atomically(folder / _TERMS, _terms(invitation).model_dump_json(indent=2) + "\n", mode=PRIVATE)
    except DeployError:
        if there is None:
            shutil.rmtree(folder)
        raise
    return Accepted(_terms(invitation), folder)


def accepted(device: Path) -> Accepted | None:
    """The accepted invitation, or None."""
    folder = device / FOLDER
    try:
        text = (folder / _TERMS).read_text(encoding="utf-8")
        return Accepted(Terms.model_validate_json(text), folder)
    except FileNotFoundError:
        return None
    except (ValidationError, OSError, UnicodeDecodeError):
        raise DeployError(
            f"{folder / _TERMS} cannot be read", "accept the invitation again: solera node accept"
        ) from None


def leave(device: Device) -> None:
    """Leave all federations, and remove the accepted invitation with the household's key.

    Nothing joins again by itself. The owner may accept another invitation, or the same one again.
    """
    Ledger(device.store).leave_all()
    there = accepted(device.path)
    if there is not None:
        shutil.rmtree(there.folder)


def conflicts(asked: Asked, policy: Policy) -> list[str]:
    """What the device's policy forbids of it, in words: such rounds would be declined."""
    found = []
    if not asked.masked and not policy.allow_plain:
        found.append("your policy allows only masked rounds")
    if asked.masked and asked.least_nodes is not None and asked.least_nodes < policy.least_nodes:
        found.append(
            f"your policy asks for sums over at least {policy.least_nodes} devices, not {asked.least_nodes}"
        )
    limits = [each for each in (policy.epsilon, policy.total_epsilon) if each is not None]
    if limits and (asked.epsilon is None or asked.epsilon > min(limits)):
        spent = f"ε = {asked.epsilon:g}" if asked.epsilon else "no noise"
        found.append(f"your policy allows ε of {min(limits):g} at most, not {spent}")
    return found


def _terms(invitation: Invitation) -> Terms:
    return Terms(
        federation=invitation.federation,
        server=invitation.server,
        node=invitation.node,
        asked=invitation.asked,
    )
