"""solera node: a device that takes part in a federation."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from solera.cli.federation import ShowCommands
from solera.cli.invitation import accept, leave
from solera.cli.output import err, help_if_alone, out, say
from solera.cli.server import OPEN

app = typer.Typer(help="A device's part in a federation over a network.", invoke_without_command=True)
app.callback()(help_if_alone)
app.command()(accept)
app.command()(leave)


@app.command()
def start(
    device: Annotated[Path, typer.Argument(help="Folder of the device.")],
    superlink: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Address of the server (default: of the accepted invitation)."
        ),
    ] = None,
    ca: Annotated[Path | None, typer.Option(help="ca.pem, the federation's certificate authority.")] = None,
    key: Annotated[Path | None, typer.Option(help="The node's own secret key, nodes/NAME.")] = None,
    server_ca: Annotated[
        Path | None,
        typer.Option(
            help="The address is an edge's, and --ca the edge's ca.pem: this is that of the server behind it."
        ),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Connect without --ca and --key, and without encryption.")
    ] = False,
    roster: Annotated[
        Path | None,
        typer.Option(help="Signed list of nodes, for masked rounds (default: roster.json next to ca.pem)."),
    ] = None,
    roster_key: Annotated[
        Path | None,
        typer.Option(help="Public key that the list is signed with (default: roster.pub next to the list)."),
    ] = None,
    join: Annotated[
        bool, typer.Option("--join", help="Agree to the next federation that asks, within your policy.")
    ] = False,
    show_commands: ShowCommands = False,
) -> None:
    """Take part in a federation until Ctrl-C. `solera device outbox` shows what has left the device.

    A device takes part in what its owner has agreed to: give --join, or `solera device join` when the server
    has asked. What it never does, whatever a server asks for: `solera device policy`. With a roster, nothing
    is sent but sums over many nodes, under masks: see docs/federation/secure-aggregation.md.

    Example: solera node start me

    Example: solera node start me --superlink recommender.example.org:8000 --ca ca.pem --key node-1 --join

    Example: solera node start me --superlink media.lan:8001 --ca edge-ca.pem --key node-1 --server-ca ca.pem
    """
    from solera.core.errors import ConfigError
    from solera.deploy.common.flower import Address
    from solera.deploy.common.private_files import private_files
    from solera.deploy.node.accepted import accepted
    from solera.deploy.node.membership import to_pin
    from solera.deploy.operate import supernode
    from solera.deploy.operate.processes import ended_by_signals
    from solera.deploy.operate.serving import serve
    from solera.device.device import Device
    from solera.device.ledger import JOINED, Ledger

    invited = accepted(device) if superlink is None else None
    if invited:
        superlink, ca, key = invited.invitation.server, ca or invited.ca, key or invited.key
    if invited and join:
        raise ConfigError(
            "--join would agree to more than the invitation that was accepted", "leave out --join"
        )
    if superlink is None:
        raise ConfigError(
            f"{device} has accepted no invitation", "give --superlink; or accept one: solera node accept"
        )
    if insecure == (ca is not None or key is not None) or (ca is None) != (key is None):
        raise ConfigError(
            "give either --ca and --key, or --insecure", "ask the server's operator for ca.pem and a key"
        )
    if server_ca is not None and ca is None:
        raise ConfigError("--server-ca needs --ca and --key", "--ca is the ca.pem of the edge")
    address = Address.parse(superlink, ca and ca.resolve())
    key = key and key.resolve()
    if show_commands:
        for line in supernode.commands(device, address, key, server_ca):
            out.print(line, highlight=False, markup=False, soft_wrap=True)
        return
    if insecure:
        err.print(f"[bold yellow]warning:[/] {OPEN}", highlight=False, soft_wrap=True)
    supernode.check_key(key)
    with private_files(), ended_by_signals(), supernode.alone(device):
        with closing(Device.open(device)) as opened:
            ledger = Ledger(opened.store)
            joined = any(each["standing"] == JOINED for each in ledger.federations())
            agreed = join or joined or ledger.joins_next
            pinned = to_pin(opened.store, key, server_ca or ca, roster, roster_key)
        if pinned and pinned.roster.nodes:
            out.print(
                f"uploads are masked: {len(pinned.roster.nodes)} nodes are in the roster"
                f" {pinned.roster.digest[:16]}",
                highlight=False,
            )
        if not agreed:
            out.print(
                "you have not agreed to any federation yet: this node will decline until you do;"
                f" see solera device status {device}",
                highlight=False,
                soft_wrap=True,
            )

        def keep() -> None:
            """Change the device once the server has taken its key: a refused start changes nothing."""
            with closing(Device.open(device)) as opened, opened.store.writing():
                if pinned:
                    pinned.pin(opened.store)
                if join:
                    Ledger(opened.store).join_next()

        try:
            serve(device, address, key, say, server_ca=server_ca, joined=keep)
        except KeyboardInterrupt:
            out.print("the node ends")
