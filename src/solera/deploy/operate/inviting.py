"""Make invitations from a folder of keys."""

from __future__ import annotations

from pathlib import Path

from solera.core.errors import ConfigError, DeployError
from solera.deploy.common.authority import ROSTER_PUBLIC
from solera.deploy.common.flower import Address
from solera.deploy.common.invitation import Asked, Invitation
from solera.deploy.secure.roster import ROSTER, read_roster, read_roster_key

QR_CHARACTERS = 2953  # of the largest QR code, with the least redundancy


def invitation(keys: Path, node: str, server: str, federation: str, asked: Asked) -> Invitation:
    """The invitation of one node of the folder. With masks it has the signed list of nodes too."""
    Address.parse(server)
    roster, roster_key = keys / ROSTER, keys / ROSTER_PUBLIC
    if asked.masked:
        listed = read_roster(roster, read_roster_key(roster_key))
        if node not in listed.nodes:
            raise DeployError(
                f"the roster does not have {node}", f"sign a newer one: solera federation roster {keys}"
            )
    return Invitation(
        federation=federation,
        server=server,
        ca=_text(keys / "ca.pem"),
        node=node,
        key=_text(keys / "nodes" / node),
        roster=_text(roster) if asked.masked else None,
        roster_key=_text(roster_key) if asked.masked else None,
        asked=asked,
    )


def write_qr(link: str, path: Path) -> None:
    """Write a link as a QR code, SVG or PNG by the name of the file."""
    try:
        import segno  # noqa: PLC0415 - in the extra
    except ImportError:
        raise ConfigError("a QR code needs segno", "pip install 'solera[deploy]'") from None
    if len(link) > QR_CHARACTERS:
        raise ConfigError(
            f"the invitation is too long for a QR code: {len(link):,} of {QR_CHARACTERS:,} characters",
            "send the file or the link instead; a roster of many nodes makes it long",
        )
    if path.suffix not in {".svg", ".png"}:
        raise ConfigError(f"{path} is neither .svg nor .png", "for example --qr node-3.svg")
    segno.make(link, error="l", boost_error=False).save(str(path), scale=4)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise DeployError(
            f"{path} cannot be read", "`solera federation keys DIR --nodes 3` makes the keys of three nodes"
        ) from None
