"""solera helper: the second operator of threshold reports."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from solera.cli.output import Answer, Table, answers, help_if_alone, out
from solera.core.errors import ConfigError

app = typer.Typer(help="The helper and the server of threshold reports.", invoke_without_command=True)
app.callback()(help_if_alone)

Folder = Annotated[Path, typer.Argument(help="Folder of this operator: its key and its database.")]
Federation = Annotated[str, typer.Option(help="Name of the federation; the same for both operators.")]
Least = Annotated[int, typer.Option(help="T: what fewer devices have stays closed.", min=2, max=300)]
Reports = Annotated[int, typer.Option(help="Reports of every device in an epoch.", min=1, max=4096)]
Every = Annotated[float, typer.Option(metavar="SECONDS", help="Length of an epoch.", min=1)]
Database = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="The server's PostgreSQL, postgresql://…; otherwise a file in its folder."
    ),
]
Host = Annotated[str, typer.Option(help="Address to listen on. TLS is nginx's job.")]


@app.command()
def start(
    folder: Folder,
    federation: Federation,
    server: Annotated[str, typer.Option(metavar="URL", help="The server of reports.")],
    server_key: Annotated[str, typer.Option(metavar="HEX", help="Its public key, which it prints.")],
    devices: Annotated[Path, typer.Option(metavar="DIR", help="Public keys of the devices, NAME.pub.")],
    least_devices: Least = 20,
    reports: Reports = 210,
    every: Every = 86_400,
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65535)] = 8440,
) -> None:
    """Run the helper until Ctrl-C. Its operator must not be the server's.

    Example: solera helper start helper --federation films --server https://server:8441 --server-key HEX
        --devices keys/nodes
    """
    from solera.federation.common.address import Address
    from solera.federation.reports import start as services
    from solera.federation.reports.service import Plan, Upstream

    public, known = services.read_public(server_key), services.keys_in(devices)
    if not server.startswith(("https://", "http://")):
        raise ConfigError(f"{server!r} is not an address", "ask the server's operator: https://HOST:PORT")
    plan = Plan(federation=federation, least_devices=least_devices, reports=reports, every=every)
    upstream = Upstream(server, services.helper_key(folder), public)
    out.print(f"the helper listens at http://{host}:{port}; Ctrl-C ends it", highlight=False)
    out.print(f"next: give {folder / 'helper.pub'} to the server's operator", style="dim", highlight=False)
    services.run_helper(folder, plan, known, upstream, Address(host, port))


@app.command()
def serve(
    folder: Folder,
    federation: Federation,
    helper: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder with the helper's public key, NAME.pub.")
    ],
    least_devices: Least = 20,
    reports: Reports = 210,
    every: Every = 86_400,
    database: Database = None,
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65535)] = 8441,
) -> None:
    """Run the server that receives reports from the helper, until Ctrl-C.

    Example: solera helper serve server --federation films --helper keys/helper

    Example: solera helper serve server --federation films --helper keys/helper
        --database postgresql://solera@db/reports
    """
    from solera.federation.common.address import Address
    from solera.federation.reports import start as services
    from solera.federation.reports.service import Plan

    plan = Plan(federation=federation, least_devices=least_devices, reports=reports, every=every)
    known = services.keys_in(helper)
    if database is not None:
        services.server_database(folder, database).close()  # it answers
    public = services.server_key(folder).public_key().public_bytes_raw().hex()
    out.print(f"the server of reports listens at http://{host}:{port}; Ctrl-C ends it", highlight=False)
    out.print(f"its public key: {public}", highlight=False, soft_wrap=True)
    services.run_server(folder, plan, known, Address(host, port), database)


@app.command()
@answers
def counts(
    folder: Folder,
    federation: Federation,
    epoch: Annotated[int | None, typer.Option(help="Of one epoch (default: of all).")] = None,
    database: Database = None,
) -> Answer:
    """Show what a server of reports has counted: items and pairs of the catalogue by number, and devices.

    Example: solera helper counts server --federation films
    """
    from solera.federation.reports.start import SERVER, server_database, server_key
    from solera.privacy.reports.server import Server

    if not (folder / SERVER).is_file():
        raise ConfigError(f"{folder} is not of a server of reports", "solera helper serve FOLDER starts one")
    found = Server(server_database(folder, database), server_key(folder)).counts(federation, epoch)
    columns = ("kind", "first", "second", "lag", "devices")
    rows = [(*each, devices) for each, devices in sorted(found.items(), key=lambda entry: -entry[1])]
    listed = [dict(zip(columns, row, strict=True)) for row in rows]
    return Answer(listed, [Table(f"{len(rows)} items and pairs", columns, rows)])
