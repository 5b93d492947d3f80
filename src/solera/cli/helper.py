"""solera helper: the second operator of threshold reports."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from solera.cli.output import Answer, Line, Table, answers, help_if_alone, out
from solera.core.errors import ConfigError

if TYPE_CHECKING:
    from solera.privacy.reports.measurements import Measurement

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
    found = _counts(folder, federation, database, epoch)
    columns = ("kind", "first", "second", "lag", "devices")
    rows = [(*each, devices) for each, devices in sorted(found.items(), key=lambda entry: -entry[1])]
    listed = [dict(zip(columns, row, strict=True)) for row in rows]
    return Answer(listed, [Table(f"{len(rows)} items and pairs", columns, rows)])


@app.command()
@answers
def solve(
    folder: Folder,
    federation: Federation,
    bundle: Annotated[
        Path, typer.Option(metavar="FILE", help="Bundle of the devices: its method and its catalogue.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="Bundle to write.")],
    key: Annotated[Path, typer.Option(help="The publisher's secret key, which signed the other bundle.")],
    option: Annotated[
        list[str] | None,
        typer.Option("-O", "--option", help="One of the method's options, key=value; repeatable."),
    ] = None,
    database: Database = None,
) -> Answer:
    """Solve a model from all that a server of reports has counted, as a bundle for devices and pages.

    Example: solera helper solve server --federation films --bundle films.bundle -o films-2.bundle
        --key publisher.key -O reg=50
    """
    from solera.cli.options import parse_pairs
    from solera.device.bundle import Bundle
    from solera.federation.reports.solving import solve as solved

    given, old = parse_pairs(option or [], "-O reg=50"), Bundle.open(bundle)
    counts = _counts(folder, federation, database)
    made = solved(old, counts, output, key, options=given, trained={"federation": federation})
    size = output.stat().st_size
    said = f"{output}: {made.counted:,} items and pairs, {size:,} bytes"
    left = f"{made.left_out:,} are not of the catalogue or of another kind, and were left out"
    return Answer(
        {"file": str(output), "counted": made.counted, "left_out": made.left_out, "bytes": size},
        [
            said,
            *([left] if made.left_out else []),
            Line(f"next: devices: solera device update me --bundle {output}", "dim"),
        ],
    )


def _counts(
    folder: Path, federation: str, database: str | None, epoch: int | None = None
) -> dict[Measurement, int]:
    from solera.federation.reports.start import SERVER, server_database, server_key
    from solera.privacy.reports.server import Server

    if not (folder / SERVER).is_file():
        raise ConfigError(f"{folder} is not of a server of reports", "solera helper serve FOLDER starts one")
    return Server(server_database(folder, database), server_key(folder)).counts(federation, epoch)
