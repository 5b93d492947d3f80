"""A server's app that fails."""

from __future__ import annotations

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

server = ServerApp()


@server.main()
def fail(grid: Grid, context: Context) -> None:
    raise ValueError("the cat sat on the server")
