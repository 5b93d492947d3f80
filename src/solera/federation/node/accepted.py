"""The invitation that a device has accepted: a folder of its own, from which the node starts.

DEVICE/federation/invitation.json  federation, server, what it asks for, and the code
DEVICE/federation/ca.pem           the authority's certificate
DEVICE/federation/node, node.pub   the key that this device has made for it
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from solera.core.errors import DeployError
from solera.core.files import PRIVATE, creating_folder, remove_folder, write_atomically
from solera.device.device import Device
from solera.device.ledger import JOINED, Ledger
from solera.federation.common.address import Address
from solera.federation.common.authority import make_node_key
from solera.federation.common.invitation import Invitation
from solera.federation.node.membership import Membership
from solera.federation.secure.roster import Roster, parse_roster_key

FOLDER, _INVITATION, _SHOWN = "federation", "invitation.json", "shown"


@dataclass(frozen=True)
class Accepted:
    """An accepted invitation and its files."""

    invitation: Invitation
    folder: Path

    @property
    def ca(self) -> Path:
        """The authority's certificate."""
        return self.folder / "ca.pem"

    @property
    def key(self) -> Path:
        """The device's secret key, which it has made itself."""
        return self.folder / "node"

    @property
    def public_key(self) -> Path:
        """The public half, which the server and the roster's signer get."""
        return self.folder / "node.pub"

    @property
    def is_shown(self) -> bool:
        """Whether the server has taken the public key."""
        return (self.folder / _SHOWN).exists()

    def note_shown(self) -> None:
        """Remember that the server has taken the public key."""
        write_atomically(self.folder / _SHOWN, "", mode=PRIVATE)

    @property
    def address(self) -> Address:
        """The server's."""
        return Address.parse(self.invitation.server, self.ca.resolve())


def accept(device: Device, invitation: Invitation) -> Accepted:
    """Make a key for a federation, keep its invitation, and agree to what it asks for.

    Another invitation that was accepted before has to go first. The same one again changes nothing for a
    device that takes part.
    """
    ledger, there = Ledger(device.store), accepted(device.path)
    if there is not None and there.invitation != invitation:
        raise DeployError(
            f"this device takes part in {there.invitation.federation!r} at {there.invitation.server}",
            f"leave it first: solera device leave {device.path}",
        )
    joined = [each["id"] for each in ledger.federations() if each["standing"] == JOINED]
    if there is None and joined:
        raise DeployError(
            f"this device takes part in federation {joined[0][:8]} on other terms",
            f"leave it first: solera device leave {device.path} {joined[0][:8]}",
        )
    signer = parse_roster_key(invitation.roster_key) if invitation.roster_key else None
    pinned = Membership.read(device.store)
    if signer and pinned and pinned.roster_key != base64.b64encode(signer).decode():
        raise DeployError(
            "this device has pinned the signer of another federation's list of devices",
            f"if that one is over: solera device policy {device.path} --unpin",
        )
    if there is None:
        invitation.code.check_age()
        remove_folder(device.path / FOLDER)  # without an invitation: it was being left
        with creating_folder(device.path / FOLDER, mode=0o700) as folder:
            make_node_key(folder / "node", invitation.code.name)
            write_atomically(folder / "ca.pem", invitation.ca, mode=PRIVATE)
            write_atomically(folder / _INVITATION, invitation.model_dump_json(indent=2) + "\n", mode=PRIVATE)
        there = Accepted(invitation, device.path / FOLDER)
    with device.store.writing():
        if signer and pinned is None:
            text = base64.b64encode(signer).decode()
            Membership(key=there.key.resolve(), roster_key=text, roster=Roster(nodes={})).pin(device.store)
        if not joined:
            ledger.join_next(invitation.asked)
    return there


def accepted(device: Path) -> Accepted | None:
    """The accepted invitation, or None."""
    path = device / FOLDER / _INVITATION
    try:
        return Accepted(Invitation.model_validate_json(path.read_text(encoding="utf-8")), path.parent)
    except FileNotFoundError:
        return None
    except (ValidationError, OSError, UnicodeDecodeError):
        raise DeployError(
            f"{path} cannot be read", f"solera device leave {device}, then accept a new invitation"
        ) from None


def leave(device: Device) -> None:
    """Leave all federations, and remove the accepted invitation with the device's key for it.

    Nothing joins again by itself. The owner may accept another invitation.
    """
    with device.store.writing():
        Ledger(device.store).leave_all()
        Membership.forget(device.store)
    remove_folder(device.path / FOLDER)
