"""Submit a run to the SuperLink and follow it until it ends."""

from __future__ import annotations

import json
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from solera.core.errors import DeployError
from solera.core.files import PRIVATE, write_atomically
from solera.deploy.common import flower
from solera.deploy.common.authority import ROSTER_PUBLIC
from solera.deploy.common.credential import read_token
from solera.deploy.operate import reachability
from solera.deploy.operate.control import Control, Ending, control
from solera.deploy.secure.roster import ROSTER, Roster, read_roster, read_roster_key

Round = dict[str, Any]  # a line of history.jsonl


def command(folder: Path) -> str:
    """What `submit` does, as a line for a shell; the app it sends is written."""
    flower.read_address(folder)
    home = flower.home_of(folder)
    flower.write_app(home)
    return flower.as_shell(home, flower.run(home, folder))


def check(folder: Path) -> None:
    """Raise an error if the federation's server does not answer."""
    reachability.check(flower.read_address(folder))


def roster_of(folder: Path, given: Path | None) -> Roster:
    """The nodes' keys for masked rounds; roster.pub, which they are signed with, is beside the list."""
    ca = flower.read_address(folder).ca
    if ca is None:
        raise DeployError(
            "secure aggregation needs nodes with keys", f"solera server start {folder} --keys DIR"
        )
    path = given or ca.with_name(ROSTER)
    return read_roster(path, read_roster_key(path.with_name(ROSTER_PUBLIC)))


def run(
    folder: Path,
    on_round: Callable[[Round], None],
    *,
    nodes: int = 1,
    server_app: str = flower.SERVER_APP,
    client_app: str = flower.CLIENT_APP,
) -> Round:
    """Start a run as soon as `nodes` nodes are there and follow it to its end; returns its last round.

    A former run ends: its command may have been killed, or the server that it ran on.
    """
    address = flower.read_address(folder)
    reachability.check(address)
    home = flower.home_of(folder)
    app = flower.write_app(home, server_app, client_app)
    history = History(folder / "history.jsonl")
    last: Round = {}

    def report(finished: Round) -> None:
        last.update(finished)
        on_round(finished)

    with control(address, read_token(home)) as asked:
        asked.stop_all()
        wait_for_nodes(asked, nodes)
        number = asked.start(app, {"folder": str(folder.resolve())})
        try:
            ending = follow(asked, number, history, report)
        except KeyboardInterrupt:
            asked.stop(number)
            raise
        log = home / f"run-{number}.log"
        write_atomically(log, asked.log(number), PRIVATE)
    if ending.how != "completed":
        raise DeployError(
            f"run {number} {ending.how or 'has not ended'}: {_gist(ending.details)}",
            f"see {log}; then go on with: solera federation run {folder} --resume",
        )
    return last


def wait_for_nodes(asked: Control, wanted: int, seconds: float = 60.0) -> None:
    """Wait until this many nodes are online; an error if for so many seconds no further one has come."""
    most, until = -1, 0.0
    while (nodes := asked.nodes()).online < wanted:
        if nodes.online > most:
            most, until = nodes.online, time.monotonic() + seconds
        elif time.monotonic() > until:
            raise DeployError(
                f"{nodes.online} of {wanted} nodes are online ({nodes.registered} are registered),"
                f" and no other has come for {seconds:g} s",
                "solera node start DEVICE --superlink HOST:PORT --ca ca.pem --key nodes/NAME",
            )
        time.sleep(0.5)


def follow(
    asked: Control, number: int, history: History, on_round: Callable[[Round], None], pause: float = 1.0
) -> Ending:
    """Report every finished round until the run has ended."""
    while True:
        ending = asked.ending(number)
        for finished in history.new():
            on_round(finished)
        if ending.how:
            return ending
        time.sleep(pause)


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
        """The rounds finished since the last call; a line still being written waits for the next."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._at)
            whole, end, _ = file.read().rpartition(b"\n")
        self._at += len(whole) + len(end)
        return [json.loads(line) for line in whole.splitlines()]


def _gist(text: str) -> str:
    return textwrap.shorten(text, 300) or "Flower does not say why"
