"""A device's key and its pinned list of nodes, with which it may be summed.

`solera node start --roster` pins them when the server has taken the key. From then on a later list is taken
only if it continues the pinned one, and nothing but the owner's word (`solera device policy --unpin`) makes
the device forget it.
"""

from __future__ import annotations

import base64
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError

from solera.core.errors import DeployError
from solera.device.device import Device
from solera.device.policy import Policy
from solera.device.store import Store
from solera.federation.common.authority import ROSTER_PUBLIC
from solera.federation.secure.roster import (
    ROSTER,
    Roster,
    parse_roster,
    read_identity_key,
    read_roster,
    read_roster_key,
)
from solera.privacy.identity import Identity, public_identity

_SETTING = "membership"


class Membership(BaseModel):
    """A node's secret key, the key that lists of nodes are signed with, and the latest such list."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: Path
    roster_key: str  # DER, in base64
    roster: Roster

    @cached_property
    def identity(self) -> Identity:
        """The secret key."""
        return read_identity_key(self.key)

    @cached_property
    def public(self) -> str:
        """The public key, as it is in the roster."""
        return base64.b64encode(public_identity(self.identity)).decode()

    def check(self) -> None:
        """Refuse a list without the key. It is empty until the first one has come."""
        if self.roster.nodes and self.public not in self.roster.nodes.values():
            raise DeployError(
                f"the roster does not have the key {self.key}", "ask whoever signs the roster for a newer one"
            )

    def write(self, store: Store) -> None:
        """Write the key and the list to the database."""
        self.check()
        store.set(_SETTING, self.model_dump_json())

    def pin(self, store: Store) -> None:
        """Write them. From the first time on, the device answers masked rounds only."""
        with store.writing():
            if Membership.read(store) is None:
                Policy.read(store).model_copy(update={"allow_plain": False}).write(store)
            self.write(store)

    @classmethod
    def read(cls, store: Store) -> Self | None:
        """Read the pinned key and list, or return None."""
        text = store.settings().get(_SETTING)
        if not text:
            return None
        try:
            return cls.model_validate_json(text)
        except ValidationError:
            raise DeployError(
                "the pinned list of nodes cannot be read", "start the node again with --roster"
            ) from None

    @staticmethod
    def forget(store: Store) -> None:
        """Remove the pinned key and list."""
        store.set(_SETTING, "")

    def with_roster(self, roster: Roster) -> Membership:
        """The same with a later list; one that does not continue the pinned list is refused."""
        if self.roster.continues(roster):
            return self
        if self.roster.nodes and not roster.continues(self.roster):
            raise DeployError(
                "the list of nodes does not continue the one that this device has pinned",
                "compare both with other members: solera federation roster --show FILE",
            )
        return self.model_copy(update={"roster": roster})

    def taking(self, text: str) -> Membership:
        """The same with a list that a server has passed on."""
        return self.with_roster(parse_roster(text, base64.b64decode(self.roster_key)))


def pin(
    device: Path, key: Path | None, ca: Path | None, roster: Path | None, roster_key: Path | None = None
) -> Membership | None:
    """Pin the signed list of nodes for a device, if there is one; see `to_pin`."""
    with closing(Device.open(device)) as opened:
        found = to_pin(opened.store, key, ca, roster, roster_key)
        if found is not None:
            found.pin(opened.store)
        return found


def to_pin(
    store: Store, key: Path | None, ca: Path | None, roster: Path | None, roster_key: Path | None
) -> Membership | None:
    """The signed list of nodes, beside ca.pem if it is not given, and the key: checked, and not pinned yet.

    A device that has a list pinned keeps it. Without --ca and --key it cannot mask, and refuses to start.
    """
    pinned = Membership.read(store)
    if key is None or ca is None:
        if pinned is not None:
            raise DeployError(
                "this device answers only masked rounds, which need --ca and --key",
                "give both; or stop using masked rounds: solera device policy DEVICE --unpin",
            )
        if roster is not None:
            raise DeployError("a roster needs --ca and --key", "give both instead of --insecure")
        return None
    path = roster or ca.with_name(ROSTER)
    if roster is None and not path.exists():
        if pinned is None:
            return None
        found = pinned.model_copy(update={"key": key.resolve()})
    else:
        signer = read_roster_key(roster_key or path.with_name(ROSTER_PUBLIC))
        text = base64.b64encode(signer).decode()
        found = Membership(key=key.resolve(), roster_key=text, roster=read_roster(path, signer))
        if pinned is not None:
            if pinned.roster_key != text:
                raise DeployError(
                    f"{path} is not signed with the key that this device has pinned",
                    "if the new key is right: solera device policy DEVICE --unpin, then start again",
                )
            found = pinned.with_roster(found.roster).model_copy(update={"key": key.resolve()})
    found.check()
    return found
