"""solera federation invite, and what joining and leaving by invitation does on a device."""

from __future__ import annotations

from contextlib import closing, suppress
from pathlib import Path
from typing import Annotated

import typer

from solera.cli.output import Answer, Line, answers, say


@answers
def invite(
    keys: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the keys.")],
    node: Annotated[str, typer.Argument(metavar="NAME", help="Name of the household, for example node-3.")],
    server: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address under which households reach the server.")
    ],
    name: Annotated[str, typer.Option(help="Name of the federation, for people.")] = "federation",
    masked: Annotated[
        bool, typer.Option("--masked", help="Promise masked rounds; needs roster.pub in DIR.")
    ] = False,
    least_nodes: Annotated[
        int | None, typer.Option(help="With --masked: smallest number of devices in a sum.", min=2)
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(help="Promise differential privacy: ε over all rounds, as devices count it.", min=0),
    ] = None,
    evaluations: Annotated[
        float | None, typer.Option(help="Ask for evaluations: their ε in all.", min=0)
    ] = None,
    days: Annotated[float, typer.Option(help="Days for which the invitation can be used.", min=0.01)] = 14,
    to: Annotated[
        Path | None, typer.Option("-o", "--out", help="File to write (default: NAME.invitation).")
    ] = None,
    qr: Annotated[Path | None, typer.Option(help="Also write the link as a QR code, .svg or .png.")] = None,
) -> Answer:
    """Write an invitation for one household: server, certificate, a code that works once, and what is asked.

    It holds no key: the device makes its own, and the server takes it with the code. Whoever else uses the
    code first takes the household's place, so send it over a channel that nobody else reads.

    Example: solera federation invite keys node-3 --server recommender.example.org:8000 --name films
    """
    from solera.core.files import PRIVATE, write_atomically
    from solera.device.policy import Agreement
    from solera.federation.operate.inviting import invitation, write_qr

    asked = Agreement(
        masked=masked,
        least_nodes=least_nodes if masked else None,
        epsilon=epsilon or None,
        evaluations=evaluations or None,
    )
    made = invitation(keys, node, server, name, asked, days=days)
    path = to or Path(f"{node}.invitation")
    if qr:
        write_qr(made.link(), qr)
    write_atomically(path, made.model_dump_json(indent=2, exclude_none=True) + "\n", mode=PRIVATE)
    written = [str(each) for each in (path, qr) if each]
    return Answer(
        {"written": written, "link": made.link()},
        [
            *(Line(f"{each}  (for {node} alone)") for each in written),
            Line("as a link:", "dim"),
            Line(made.link()),
        ],
    )


def accept(folder: Path, invitation: str | None, *, yes: bool, json: bool) -> Answer | None:
    """Show what a federation asks for, and agree to it: this device makes a key of its own."""
    from solera.core.errors import ConfigError
    from solera.core.text import clean_text
    from solera.device.device import Device
    from solera.device.policy import Policy
    from solera.federation.common.invitation import Invitation
    from solera.federation.common.private_files import private_files
    from solera.federation.node.accepted import accept as keep

    if json and not yes:
        raise ConfigError("--json asks no question", "give --yes to agree")
    found = Invitation.read(invitation) if invitation else Invitation.parse(typer.prompt("Invitation"))
    federation, server = clean_text(found.federation), clean_text(found.server)
    with closing(Device.open(folder)) as device:
        policy = Policy.read(device.store)
        forbidden = policy.conflicts(found.asked)
        if not json:
            say(f"a federation that calls itself {federation!r}, at {server}, asks:")
            for line in policy.sentences(found.asked):
                say(f"  {line}")
            for line in forbidden:
                say(f"  but {line}: your device will decline")
        if not yes and not typer.confirm("Take part?", default=False):
            say("nothing was changed")
            return None
        with private_files():
            keep(device, found)
    return Answer(
        {"federation": federation, "server": server, "declined": forbidden},
        [Line(f"next: solera node start {folder}", "dim")],
    )


def leave(folder: Path) -> Answer:
    """Leave the federation whose invitation was accepted: the server's address and the key are removed."""
    from solera.core.errors import ConfigError, DeployError
    from solera.core.text import clean_text
    from solera.device.device import Device
    from solera.federation.node.accepted import accepted
    from solera.federation.node.accepted import leave as give_up

    federation, server = "a federation", "an unknown server"
    with suppress(DeployError):  # of another version of Solera: it can be left all the same
        there = accepted(folder)
        if there is None:
            hint = f"name the federation to leave; solera device status {folder} lists the ids"
            raise ConfigError(f"{folder} has accepted no invitation", hint)
        federation, server = clean_text(there.invitation.federation), clean_text(there.invitation.server)
    with closing(Device.open(folder)) as device:
        give_up(device)
    return Answer({"left": federation, "server": server}, [Line(f"left {federation} at {server}")])
