"""solera node: a device that takes part in a federation."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from solera.cli.output import err, help_if_alone, out, say
from solera.cli.server import OPEN

app = typer.Typer(help="A device's part in a federation over a network.", invoke_without_command=True)
app.callback()(help_if_alone)


@app.command()
def start(
    device: Annotated[Path, typer.Argument(help="Folder of the device.")],
    server: Annotated[
        str | None,
        typer.Option(
            "--server",
            "--superlink",
            metavar="HOST:PORT",
            help="Address of the server (default: of the accepted invitation).",
        ),
    ] = None,
    ca: Annotated[Path | None, typer.Option(help="ca.pem, the federation's certificate authority.")] = None,
    key: Annotated[Path | None, typer.Option(help="The node's own secret key, nodes/NAME.")] = None,
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
) -> None:
    """Take part in a federation until Ctrl-C. `solera device outbox` shows what has left the device.

    A device takes part in what its owner has agreed to: give --join, or `solera device join` when the server
    has asked. What it never does, whatever a server asks for: `solera device policy`. With a roster, nothing
    is sent but sums over many nodes, under masks: see docs/federation/secure-aggregation.md.

    Example: solera node start me

    Example: solera node start me --server recommender.example.org:8000 --ca ca.pem --key node-1 --join
    """
    from solera.core.errors import ConfigError
    from solera.device.device import Device
    from solera.device.ledger import JOINED, Ledger
    from solera.federation.common.address import Address
    from solera.federation.common.private_files import private_files
    from solera.federation.node.accepted import accepted
    from solera.federation.node.membership import to_pin
    from solera.federation.operate import node_process
    from solera.federation.operate.processes import ended_by_signals

    invited = accepted(device) if server is None else None
    if invited:
        server, ca, key = invited.invitation.server, ca or invited.ca, key or invited.key
    if invited and join:
        raise ConfigError(
            "--join would agree to more than the invitation that was accepted", "leave out --join"
        )
    if server is None:
        raise ConfigError(
            f"{device} has accepted no invitation", "give --server; or accept one: solera device join"
        )
    if insecure == (ca is not None or key is not None) or (ca is None) != (key is None):
        raise ConfigError(
            "give either --ca and --key, or --insecure", "ask the server's operator for ca.pem and a key"
        )
    address = Address.parse(server, ca and ca.resolve())
    key = key and key.resolve()
    if insecure:
        err.print(f"[bold yellow]warning:[/] {OPEN}", highlight=False, soft_wrap=True)
    node_process.check_key(key)
    with private_files(), ended_by_signals(), node_process.alone(device):
        with closing(Device.open(device)) as opened:
            ledger = Ledger(opened.store)
            joined = any(each["standing"] == JOINED for each in ledger.federations())
            agreed = join or joined or ledger.joins_next
            pinned = to_pin(opened.store, key, ca, roster, roster_key)
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
            node_process.serve(device, address, key, say, joined=keep)
        except KeyboardInterrupt:
            out.print("the node ends")
