"""Where a federation's server is, and where its database is: FOLDER/network/server.json."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from solera.core.errors import ConfigError, DeployError
from solera.core.files import PRIVATE, write_atomically
from solera.core.frozen import Frozen
from solera.federation.common.private_files import private_folder

PORT = 8000
OPEN = "open"  # the tag of requests where nothing is encrypted
_HOST = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]|[0-9A-Fa-f:.]+")
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


@dataclass(frozen=True)
class Address:
    """Where a server listens, and whose certificate it must show; without `ca` nothing is encrypted."""

    host: str = "127.0.0.1"
    port: int = PORT
    ca: Path | None = None

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The same for a browser."""
        return f"{'http' if self.ca is None else 'https'}://{self}"

    @classmethod
    def parse(cls, text: str, ca: Path | None = None) -> Address:
        """HOST:PORT, with brackets around an IPv6 host."""
        host, _, port = text.rpartition(":")
        if not host or not _HOST.fullmatch(host) or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ConfigError(f"{text!r} is not HOST:PORT", f"for example 192.168.1.5:{PORT}")
        return cls(host.removeprefix("[").removesuffix("]"), int(port), ca)

    def from_here(self) -> Address:
        """How this machine itself reaches a server that listens everywhere."""
        return Address(_EVERYWHERE.get(self.host, self.host), self.port, self.ca)


class Place(Frozen):
    """What every command on a federation needs to know of its server; private, as it may have a password."""

    address: str
    ca: Path | None = None
    database: str  # postgresql://…, or sqlite:///FILE

    @classmethod
    def read(cls, folder: Path) -> Place:
        """As `solera server start` noted it."""
        try:
            return cls.model_validate_json((home_of(folder) / "server.json").read_bytes())
        except (OSError, ValidationError):
            raise DeployError(
                f"no server has been started for {folder}", f"solera server start {folder} --keys DIR"
            ) from None

    def write(self, folder: Path) -> None:
        """For every later command on this federation."""
        write_atomically(
            private_folder(home_of(folder)) / "server.json", self.model_dump_json(indent=2) + "\n", PRIVATE
        )

    @property
    def server(self) -> Address:
        """The server, as this machine reaches it."""
        return Address.parse(self.address, self.ca)


def home_of(folder: Path) -> Path:
    """The network's part of a federation's or a device's folder."""
    return folder.resolve() / "network"


def tag_of(ca: Path | None) -> str:
    """What every request to a federation is tagged with: the fingerprint of its authority's certificate."""
    if ca is None:
        return OPEN
    try:
        return base64.urlsafe_b64encode(hashlib.sha256(ca.read_bytes()).digest()).decode().rstrip("=")
    except OSError as error:
        raise DeployError(f"{ca} cannot be read: {error.strerror}", "give --ca ca.pem") from None
