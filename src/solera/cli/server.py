"""solera server: the server that the nodes of a federation connect to."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from solera.cli.output import Answer, Line, answers, err, help_if_alone, out

app = typer.Typer(help="The server of a federation over a network.", invoke_without_command=True)
app.callback()(help_if_alone)

Folder = Annotated[Path, typer.Argument(help="The federation's folder.")]

OPEN = "nothing is encrypted and whoever calls is let in: for tests on one machine, never on a network"


@app.command()
def start(
    folder: Folder,
    keys: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder made by `solera federation keys`."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65535)] = 8000,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Run without keys: no encryption, and any node may join.")
    ] = False,
    metrics_port: Annotated[
        int | None,
        typer.Option(help="Serve metrics for Prometheus on this port (usually 9464).", min=1, max=65535),
    ] = None,
    metrics_host: Annotated[str, typer.Option(help="Address to serve the metrics on.")] = "127.0.0.1",
    database: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="SOLERA_DATABASE",
            help="postgresql://USER@HOST/NAME (default: a SQLite file in FOLDER).",
        ),
    ] = None,
    workers: Annotated[
        int, typer.Option(help="Processes that answer; several need --database.", min=1, max=64)
    ] = 1,
    socket: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Listen on a Unix socket, for nginx with the certificate."),
    ] = None,
    check_in_every: Annotated[
        float, typer.Option(metavar="SECONDS", help="Time between two check-ins of a device.", min=1)
    ] = 20,
) -> None:
    """Run the server with TLS until Ctrl-C, for the nodes whose keys are in DIR/nodes.

    SIGHUP replaces the workers one by one, for an upgrade. A new certificate is taken without a restart.

    Example: solera server start films --keys keys --host 0.0.0.0

    Example: solera server start films --keys keys --database postgresql://solera@db/films --workers 2
        --socket /run/solera/server.sock --check-in-every 300
    """
    from solera.core.errors import ConfigError

    if (keys is None) != insecure:
        raise ConfigError(
            "--keys is missing" if keys is None else "--keys and --insecure cannot be combined",
            "give --keys DIR; `solera federation keys DIR` makes the keys",
        )
    from solera.federation.common.address import Address
    from solera.federation.common.private_files import is_open, private_files
    from solera.federation.operate import server
    from solera.federation.operate.processes import ended_by_signals

    if workers > 1 and database is None:
        raise ConfigError("several workers need PostgreSQL", "give --database, or leave --workers out")
    keys = keys and keys.resolve()
    address = Address(host, port, keys and keys / "ca.pem")
    if insecure:
        err.print(f"[bold yellow]warning:[/] {OPEN}", highlight=False, soft_wrap=True)
    if folder.exists() and is_open(folder):
        text = f"other users of this machine can list {folder}; chmod 700 {folder} ends that"
        err.print(f"[bold yellow]warning:[/] {text}", highlight=False, soft_wrap=True)
    with ExitStack() as stack:
        stack.enter_context(private_files())
        stack.enter_context(ended_by_signals())
        exporter = None
        if metrics_port is not None:
            from solera.federation.operate.metrics import serving

            exporter = stack.enter_context(
                serving(folder, metrics_port, metrics_host, keys and keys / "server.pem")
            )
        runs = stack.enter_context(
            server.running(
                folder, address, keys, database=database, workers=workers, path=socket, every=check_in_every
            )
        )
        where = socket or address
        out.print(f"the server listens at {where}; Ctrl-C ends it; log: {runs.log}", highlight=False)
        called = "HOST" if host in {"0.0.0.0", "::"} else host
        hint = f"next: solera federation invite {keys} NAME --server {called}:{port}"
        if keys is None:
            hint = f"next: solera node start DEVICE --server {called}:{port} --insecure"
        out.print(hint, style="dim", highlight=False, soft_wrap=True)
        if metrics_port is not None:
            out.print(f"figures: http://{metrics_host}:{metrics_port}/metrics", highlight=False)
        try:
            for nodes in server.watch(runs):
                if exporter is not None:
                    exporter.tell(nodes)
                out.print(f"{nodes.online} of {nodes.registered} nodes are online", highlight=False)
        except KeyboardInterrupt:
            out.print("the server ends")


PublicKeys = Annotated[list[Path], typer.Argument(metavar="NAME.pub…", help="Public keys of nodes.")]


@app.command()
@answers
def register(folder: Folder, public_key: PublicKeys) -> Answer:
    """Let more nodes take part. The server keeps running.

    Example: solera server register films keys/nodes/node-4.pub
    """
    from solera.federation.operate import server

    new = server.register(folder, public_key)
    return Answer(
        {"registered": [str(path) for path in new]},
        [Line(f"{path}: {'registered' if path in new else 'known already'}") for path in public_key],
    )


@app.command()
@answers
def revoke(folder: Folder, public_key: PublicKeys) -> Answer:
    """Exclude nodes for good while the server runs. A revoked key can never be registered again.

    Example: solera server revoke films keys/nodes/node-4.pub
    """
    from solera.federation.operate import server

    gone = server.revoke(folder, public_key)
    return Answer(
        {"revoked": [str(path) for path in gone]},
        [Line(f"{path}: {'revoked' if path in gone else 'takes no part'}") for path in public_key],
    )
