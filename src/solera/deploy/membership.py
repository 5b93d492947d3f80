"""What a node insists on where uploads are masked; beside its device, in flower/secure.json.

`solera node start --roster` writes it: the keys it has found signed by the authority are the node's from then
on, and no message changes them.
"""

from __future__ import annotations

import base64
from functools import cached_property
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from solera.core.errors import DeployError
from solera.deploy.flower import home_of
from solera.deploy.rights import private_folder
from solera.deploy.roster import Roster, read_identity_key
from solera.privacy.secagg import public_identity
from solera.privacy.secagg.identity import Identity
from solera.runs.folder import write_whole

LEAST_NODES = 3


class Membership(BaseModel):
    """The node's own key, whom it takes for nodes, and how few of them it will be summed up with."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: Path
    roster: Roster
    least_nodes: int = Field(default=LEAST_NODES, ge=2)
    least_users: int = Field(default=1, ge=1, description="own users whom a round must ask for")
    allow_plain: bool = Field(default=False, description="answer rounds without masks as well")

    @cached_property
    def identity(self) -> Identity:
        """The secret key."""
        return read_identity_key(self.key)

    @cached_property
    def public(self) -> bytes:
        """The public key, as it is in the roster."""
        return public_identity(self.identity)

    @property
    def public_text(self) -> str:
        """The same in base64."""
        return base64.b64encode(self.public).decode()

    def check(self) -> None:
        """Complain if the node is not in its own roster, or the roster is too small."""
        if self.public not in self.roster.keys:
            raise DeployError(
                f"the roster has not the key {self.key}", "ask the authority for a newer roster.json"
            )
        if len(self.roster.keys) < self.least_nodes:
            raise DeployError(
                f"the roster has {len(self.roster.keys)} nodes, this one asks for {self.least_nodes}",
                "ask the authority for a larger roster, or give --least-nodes",
            )

    def write(self, device: Path) -> None:
        """Pin it for a device."""
        self.check()
        private_folder(_path(device).parent)
        write_whole(_path(device), self.model_dump_json(indent=2) + "\n")

    @classmethod
    def read(cls, device: Path) -> Self | None:
        """What is pinned for a device, if anything is."""
        path = _path(device)
        if not path.exists():
            return None
        try:
            return cls.model_validate_json(path.read_bytes())
        except (OSError, ValidationError):
            raise DeployError(f"{path} cannot be read", "start the node again with --roster") from None

    @staticmethod
    def forget(device: Path) -> None:
        """Nothing is pinned any more."""
        _path(device).unlink(missing_ok=True)


def _path(device: Path) -> Path:
    return home_of(device) / "secure.json"
