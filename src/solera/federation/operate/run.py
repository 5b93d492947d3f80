"""Run the rounds of a federation in this process, with the devices of its server."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from solera.core.errors import DeployError
from solera.federation.common.address import Place
from solera.federation.common.authority import ROSTER_PUBLIC
from solera.federation.operate import reachability
from solera.federation.operate.server import store_of
from solera.federation.secure.roster import ROSTER, Roster, read_roster, read_roster_key
from solera.federation.server.loop import run_federation
from solera.federation.server.network import WebNetwork

Round = dict[str, Any]  # a line of history.jsonl


def check(folder: Path) -> None:
    """Raise an error if the federation's server does not answer."""
    reachability.check(Place.read(folder).server)


def roster_of(folder: Path, given: Path | None) -> Roster:
    """The nodes' keys for masked rounds; roster.pub, which they are signed with, is beside the list."""
    ca = Place.read(folder).ca
    if ca is None:
        raise DeployError(
            "secure aggregation needs nodes with keys", f"solera server start {folder} --keys DIR"
        )
    path = given or ca.with_name(ROSTER)
    return read_roster(path, read_roster_key(path.with_name(ROSTER_PUBLIC)))


def run(folder: Path, on_round: Callable[[Round], None], *, nodes: int = 1) -> Round:
    """Run all rounds that are left as soon as `nodes` nodes are there; returns the last round."""
    check(folder)
    wait_for_nodes(folder, nodes)
    last: Round = {}

    def report(finished: Round) -> None:
        last.update(finished)
        on_round(finished)

    network = WebNetwork(folder)
    with network.alone():
        run_federation(network, folder, report)
    return last


def wait_for_nodes(folder: Path, wanted: int, seconds: float = 60.0) -> None:
    """Wait until this many nodes are online; an error if for so many seconds no further one has come."""
    most, until = -1, 0.0
    with store_of(folder) as store:
        while (nodes := store.nodes()).online < wanted:
            if nodes.online > most:
                most, until = nodes.online, time.monotonic() + seconds
            elif time.monotonic() > until:
                raise DeployError(
                    f"{nodes.online} of {wanted} nodes are online ({nodes.registered} are registered),"
                    f" and no other has come for {seconds:g} s",
                    "solera node start DEVICE --server HOST:PORT --ca ca.pem --key nodes/NAME",
                )
            time.sleep(0.2)


class History:
    """The lines of a journal that were not there before; with `all_lines`, those that were as well."""

    def __init__(self, path: Path, *, all_lines: bool = False) -> None:
        self._path = path
        self._at = path.stat().st_size if path.exists() and not all_lines else 0

    @property
    def is_replaced(self) -> bool:
        """Whether the file is shorter than what was read of it, as after a restore."""
        return (self._path.stat().st_size if self._path.exists() else 0) < self._at

    def new(self) -> list[Round]:
        """The lines since the last call; one still being written waits for the next."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._at)
            whole, end, _ = file.read().rpartition(b"\n")
        self._at += len(whole) + len(end)
        return [json.loads(line) for line in whole.splitlines()]
