"""solera federation invite, solera node accept and leave: joining a federation by invitation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from solera.cli.folder import Folder
from solera.cli.output import Json, out, print_json


def invite(
    keys: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the keys.")],
    node: Annotated[str, typer.Argument(help="The household's key in DIR/nodes, for example node-3.")],
    server: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address under which households reach the server.")
    ],
    name: Annotated[str, typer.Option(help="Name of the federation, for people.")] = "federation",
    masked: Annotated[
        bool, typer.Option("--masked", help="Announce masked rounds; needs the signed roster in DIR.")
    ] = False,
    least_nodes: Annotated[
        int | None, typer.Option(help="With --masked: smallest number of devices in a sum.", min=2)
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Announce differential privacy: ε over all rounds.", min=0)
    ] = None,
    to: Annotated[
        Path | None, typer.Option("-o", "--out", help="File to write (default: NODE.invitation).")
    ] = None,
    qr: Annotated[Path | None, typer.Option(help="Also write the link as a QR code, .svg or .png.")] = None,
    json: Json = False,
) -> None:
    """Write an invitation for one household: server, certificate, its own key, and what is asked of it.

    The file, link and QR code hold the household's secret key: send them over a channel that nobody else
    reads. The server has to know the key, see `solera server register`.

    Example: solera federation invite keys node-3 --server recommender.example.org:8000 --name films
    """
    from solera.core.files import PRIVATE, write_atomically
    from solera.deploy.common.invitation import Asked
    from solera.deploy.operate.inviting import invitation, write_qr

    asked = Asked(masked=masked, least_nodes=least_nodes if masked else None, epsilon=epsilon or None)
    made = invitation(keys, node, server, name, asked)
    path = to or Path(f"{node}.invitation")
    write_atomically(path, made.model_dump_json(indent=2, exclude_none=True) + "\n", mode=PRIVATE)
    if qr:
        write_qr(made.link(), qr)
    if json:
        print_json({"written": [str(path), *([str(qr)] if qr else [])], "link": made.link()})
        return
    for each in (path, qr):
        if each:
            out.print(f"{each}  (secret)", highlight=False, markup=False, soft_wrap=True)
    out.print("as a link:", style="dim")
    out.print(made.link(), highlight=False, markup=False, soft_wrap=True)


def accept(
    folder: Folder,
    invitation: Annotated[str, typer.Argument(help="File of the invitation, or its link.")],
    yes: Annotated[bool, typer.Option("--yes", help="Agree without being asked.")] = False,
    json: Json = False,
) -> None:
    """Read what a federation asks for, and agree to take part in it.

    Nothing is sent yet: `solera node start DEVICE` connects. The device's policy holds whatever an invitation
    says.

    Example: solera node accept me node-3.invitation
    """
    from solera.core.errors import ConfigError
    from solera.deploy.common.invitation import Invitation
    from solera.deploy.common.private_files import private_files
    from solera.deploy.node.accepted import accept as keep
    from solera.deploy.node.accepted import conflicts
    from solera.device.device import Device
    from solera.device.policy import Policy

    found = Invitation.read(invitation)
    device = Device.open(folder)
    try:
        forbidden = conflicts(found.asked, Policy.read(device.store))
        if not json:
            out.print(f"{found.federation}, at {found.server}, asks:", highlight=False, markup=False)
            for line in found.asked.sentences():
                out.print(f"  {line}", highlight=False, soft_wrap=True)
            for line in forbidden:
                out.print(f"  but {line}: your device will decline", highlight=False, soft_wrap=True)
        elif not yes:
            raise ConfigError("--json asks no question", "give --yes to agree")
        if not yes and not typer.confirm("Take part?", default=False):
            out.print("nothing was changed")
            return
        with private_files():
            keep(device, found)
    finally:
        device.close()
    if json:
        print_json({"federation": found.federation, "server": found.server, "declined": forbidden})
        return
    out.print(f"next: solera node start {folder}", style="dim", highlight=False, soft_wrap=True)


def leave(folder: Folder, json: Json = False) -> None:
    """Leave the federation, and remove the server's address and this household's key.

    What was sent before stays with the server. The device joins nothing again by itself. To return, accept an
    invitation: `solera node accept`.

    Example: solera node leave me
    """
    from solera.core.errors import DeployError
    from solera.deploy.node.accepted import accepted
    from solera.deploy.node.accepted import leave as give_up
    from solera.device.device import Device

    there = accepted(folder)
    if there is None:
        raise DeployError(f"{folder} has accepted no invitation", f"see solera device status {folder}")
    device = Device.open(folder)
    try:
        give_up(device)
    finally:
        device.close()
    if json:
        print_json({"left": there.terms.federation, "server": there.terms.server})
        return
    out.print(f"left {there.terms.federation} at {there.terms.server}", highlight=False, markup=False)
