"""The app that Flower runs on the server of a served federation. It stays, so no round waits for a start."""

from __future__ import annotations

import logging
import time
from logging.handlers import RotatingFileHandler
from pathlib import Path

from filelock import FileLock
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from solera.core.files import PRIVATE
from solera.deploy.common.flower import home_of
from solera.deploy.common.json_log import JsonLines
from solera.deploy.server.app import Loop
from solera.deploy.server.coordinator import Coordinator
from solera.deploy.server.edges import Edges
from solera.deploy.server.plan import ServePlan
from solera.deploy.server.serve import ServeLoop
from solera.deploy.server.serving import LOCK

PLAN, LOG = "serve.json", "server.log"
_LOOK = 3.0  # seconds between looks
_LEAVING = 60.0  # seconds that a former app may take to end
_MEGABYTE = 1 << 20

app = ServerApp()


class FlowerNetwork:
    """The nodes of a Flower run."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._edges: Edges | None = None

    def online(self) -> set[int]:
        """Nodes that are online now; members in place of edges that have been greeted."""
        online = set(self._grid.get_node_ids())
        return self._edges.spread(online) if self._edges else online

    def rounds_of(self, coordinator: Coordinator) -> Loop:
        """The rounds of a coordinator."""
        self._edges = self._edges or Edges(home_of(coordinator.folder.path), coordinator.method)
        return Loop(self._grid, coordinator, self._edges)


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Serve the federation in the folder that the run names, until the run is stopped."""
    path = Path(str(context.run_config["folder"]))
    _log_to(path / LOG)
    plan = ServePlan.model_validate_json((path / PLAN).read_bytes())
    with FileLock(path / LOCK, timeout=_LEAVING, mode=PRIVATE):
        loop = ServeLoop(path, plan, FlowerNetwork(grid))
        while True:
            loop.step()
            time.sleep(_LOOK)


def _log_to(path: Path) -> None:
    """Write what the server's app logs as JSON lines, at most 30 MiB of them."""
    handler = RotatingFileHandler(path, maxBytes=10 * _MEGABYTE, backupCount=2, encoding="utf-8")
    handler.setFormatter(JsonLines())
    ours = logging.getLogger("solera")
    ours.addHandler(handler)
    ours.setLevel(logging.INFO)
