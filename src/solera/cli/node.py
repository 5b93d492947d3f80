"""solera node: a device that takes part in a federation."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated, NamedTuple

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
    from functools import partial

    from solera.federation.common.address import Address
    from solera.federation.common.private_files import private_files
    from solera.federation.operate import node_process
    from solera.federation.operate.processes import apart, ended_by_signals

    given = Given(device, server, ca, key, insecure, roster, roster_key, join)
    given, told = apart(_checked, given)
    if insecure:
        err.print(f"[bold yellow]warning:[/] {OPEN}", highlight=False, soft_wrap=True)
    assert given.server is not None
    address = Address.parse(given.server, given.ca and given.ca.resolve())
    key = given.key and given.key.resolve()
    with private_files(), ended_by_signals(), node_process.alone(device):
        for line in told:
            out.print(line, highlight=False, soft_wrap=True)
        try:
            node_process.serve(device, address, key, say, joined=partial(apart, _joined, given))
        except KeyboardInterrupt:
            out.print("the node ends")


class Given(NamedTuple):
    """What a start is given."""

    device: Path
    server: str | None
    ca: Path | None
    key: Path | None
    insecure: bool
    roster: Path | None
    roster_key: Path | None
    join: bool


def _checked(given: Given) -> tuple[Given, list[str]]:
    """The same with what the accepted invitation says, and what to tell. Changes nothing."""
    from solera.core.errors import ConfigError
    from solera.device.device import Device
    from solera.device.ledger import JOINED, Ledger
    from solera.federation.node.accepted import accepted
    from solera.federation.node.membership import to_pin
    from solera.federation.operate.node_process import check_key

    device, told = given.device, []
    invited = accepted(device) if given.server is None else None
    if invited:
        given = given._replace(
            server=invited.invitation.server, ca=given.ca or invited.ca, key=given.key or invited.key
        )
    if invited and given.join:
        raise ConfigError(
            "--join would agree to more than the invitation that was accepted", "leave out --join"
        )
    if given.server is None:
        raise ConfigError(
            f"{device} has accepted no invitation", "give --server; or accept one: solera device join"
        )
    has_ca, has_key = given.ca is not None, given.key is not None
    if given.insecure == (has_ca or has_key) or has_ca != has_key:
        raise ConfigError(
            "give either --ca and --key, or --insecure", "ask the server's operator for ca.pem and a key"
        )
    check_key(given.key)
    with closing(Device.open(device)) as opened:
        ledger = Ledger(opened.store)
        joined = any(each["standing"] == JOINED for each in ledger.federations())
        pinned = to_pin(opened.store, given.key, given.ca, given.roster, given.roster_key)
        if pinned and pinned.roster.nodes:
            told.append(
                f"uploads are masked: {len(pinned.roster.nodes)} nodes are in the roster"
                f" {pinned.roster.digest[:16]}"
            )
        if not (given.join or joined or ledger.joins_next):
            told.append(
                "you have not agreed to any federation yet: this node will decline until you do;"
                f" see solera device status {device}"
            )
    return given, told


def _joined(given: Given) -> None:
    """Change the device once the server has taken its key: a refused start changes nothing."""
    from solera.device.device import Device
    from solera.device.ledger import Ledger
    from solera.federation.node.membership import to_pin

    with closing(Device.open(given.device)) as opened, opened.store.writing():
        pinned = to_pin(opened.store, given.key, given.ca, given.roster, given.roster_key)
        if pinned:
            pinned.pin(opened.store)
        if given.join:
            Ledger(opened.store).join_next()
