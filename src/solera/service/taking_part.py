"""What the page shows of an invitation and of the federation that a device takes part in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from solera.core.text import clean_text
from solera.device import outbox
from solera.device.device import Device
from solera.device.ledger import JOINED, PAUSED, Ledger
from solera.device.policy import Agreement, Policy
from solera.federation.common.invitation import Invitation
from solera.federation.node import accepted

_WANTED = "node_wanted"  # the setting by which the node starts with the service


def asked(device: Device, text: str) -> dict[str, Any]:
    """What an invitation asks for, in words. Nothing of it is kept."""
    found = Invitation.parse(text)
    return _in_words(device, found, found.asked)


def agree(device: Device, text: str) -> None:
    """Keep an invitation, and agree to the federation that asks next."""
    accepted.accept(device, Invitation.parse(text))
    want(device, True)


def leave(device: Device) -> None:
    """Remove the household's key and the server's address. Whatever this device has joined is left."""
    want(device, False)
    accepted.leave(device)


def pause(device: Device, paused: bool) -> None:
    """Decline everything that this device has joined, or take part in it again."""
    ledger = Ledger(device.store)
    if paused:
        _change(ledger, JOINED, ledger.pause)
    else:
        _change(ledger, PAUSED, ledger.join)


def want(device: Device, wanted: bool) -> None:
    """Remember whether the node is to run while the service does."""
    device.store.set(_WANTED, "yes" if wanted else "")


def is_wanted(device: Device) -> bool:
    """Whether the node is to run."""
    return device.store.settings().get(_WANTED) == "yes" and accepted.accepted(device.path) is not None


def state(device: Device) -> dict[str, Any]:
    """The accepted invitation, what the owner has decided, and what has left the device since."""
    there = accepted.accepted(device.path)
    if there is None:
        return {"accepted": None}
    known = Ledger(device.store).federations()
    standings = {each["standing"] for each in known}
    agreed = next(
        (Agreement(**each["offer"]) for each in known if each["standing"] == JOINED), there.invitation.asked
    )
    latest = outbox.latest(device.store, since=int(there.ca.stat().st_mtime))
    return {
        "accepted": _in_words(device, there.invitation, agreed),
        "joined": JOINED in standings,
        "paused": PAUSED in standings,
    } | latest._asdict()


def _in_words(device: Device, invitation: Invitation, asked: Agreement) -> dict[str, Any]:
    policy = Policy.read(device.store)
    return {
        "federation": clean_text(invitation.federation),
        "server": clean_text(invitation.server),
        "asks": policy.sentences(asked),
        "declines": policy.conflicts(asked),
    }


def _change(ledger: Ledger, standing: str, to: Callable[[str], None]) -> None:
    for each in ledger.federations():
        if each["standing"] == standing:
            to(each["id"])
