"""Make invitations from a folder of keys."""

from __future__ import annotations

from pathlib import Path

from solera.core.errors import ConfigError, DeployError
from solera.device.policy import Agreement
from solera.federation.common.address import Address
from solera.federation.common.authority import ROSTER_PUBLIC, read_key
from solera.federation.common.invitation import Code, Invitation
from solera.federation.secure.roster import read_roster_key

QR_CHARACTERS = 2953  # of the largest QR code, with the least redundancy


def invitation(
    keys: Path, name: str, server: str, federation: str, asked: Agreement, *, days: float = 14
) -> Invitation:
    """An invitation for one household. With masks it says who signs the list of devices."""
    Address.parse(server)
    if (keys / "nodes" / f"{name}.pub").exists():
        raise DeployError(f"{name} takes part already", "choose another name for the household")
    if asked.masked:
        read_roster_key(keys / ROSTER_PUBLIC)
    return Invitation(
        federation=federation,
        server=server,
        ca=_text(keys / "ca.pem"),
        code=Code.new(name, days, read_key(keys / "ca.key")),
        roster_key=_text(keys / ROSTER_PUBLIC) if asked.masked else None,
        asked=asked,
    )


def write_qr(link: str, path: Path) -> None:
    """Write a link as a QR code, SVG or PNG by the name of the file."""
    try:
        import segno  # noqa: PLC0415 - in the extra
    except ImportError:
        raise ConfigError("a QR code needs segno", "pip install 'solera[server]'") from None
    if len(link) > QR_CHARACTERS:
        raise ConfigError(
            f"the invitation is too long for a QR code: {len(link):,} of {QR_CHARACTERS:,} characters",
            "send the file or the link instead",
        )
    if path.suffix not in {".svg", ".png"}:
        raise ConfigError(f"{path} is neither .svg nor .png", "for example --qr node-3.svg")
    try:
        segno.make(link, error="l", boost_error=False).save(str(path), scale=4)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}", "give another --qr") from None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise DeployError(
            f"{path} cannot be read", "`solera federation keys DIR` makes the keys of a federation"
        ) from None
