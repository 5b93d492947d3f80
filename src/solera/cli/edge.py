"""solera edge: one connection for many nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from solera.cli.output import help_if_alone, out, say

app = typer.Typer(help="An edge between nodes and the server of a federation.", invoke_without_command=True)
app.callback()(help_if_alone)


@app.command()
def start(
    keys: Annotated[
        Path,
        typer.Argument(help="Folder with the edge's certificate, and the members' .pub files in nodes/."),
    ],
    superlink: Annotated[str, typer.Option(metavar="HOST:PORT", help="Address of the server.")],
    ca: Annotated[Path, typer.Option(help="ca.pem, the federation's certificate authority.")],
    key: Annotated[Path, typer.Option(help="The edge's own secret key, which the server has registered.")],
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65535)] = 8001,
) -> None:
    """Pass messages on between the server and many nodes, until Ctrl-C.

    The server has one connection and one message each way for all members. The edge opens no answer; masked
    uploads it adds up. `solera federation keys KEYS --host NAME` makes its certificate: see
    docs/federation/edges.md.

    Example: solera edge start edge-keys --superlink recommender.example.org:8000 --ca ca.pem --key edge-1
    """
    from solera.deploy.common.flower import Address
    from solera.deploy.common.private_files import private_files
    from solera.deploy.operate.edge_serving import serve_edge
    from solera.deploy.operate.processes import ended_by_signals
    from solera.deploy.operate.supernode import check_key

    check_key(key)
    server = Address.parse(superlink, ca.resolve())
    with private_files(), ended_by_signals():
        try:
            serve_edge(keys.resolve(), Address(host, port), server, key.resolve(), say)
        except KeyboardInterrupt:
            out.print("the edge ends")
