"""A server's app that takes its time."""

from __future__ import annotations

import time

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

server = ServerApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    time.sleep(60)
