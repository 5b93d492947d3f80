"""Run a federation's rounds in this process, with the devices of its server: all at once, or as they are due.

Who serves looks again and again what is due, and goes on whatever happens in between.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from solera.core.errors import DeployError, SoleraError
from solera.core.files import PRIVATE, write_atomically
from solera.device.bundle import Bundle
from solera.federation.common import connection
from solera.federation.common.authority import ROSTER_PUBLIC
from solera.federation.common.json_log import JsonLines
from solera.federation.common.settings import check_roster
from solera.federation.operate.server import store_of
from solera.federation.secure.roster import ROSTER, Roster, read_roster, read_roster_key
from solera.federation.server.folder import FederationFolder
from solera.federation.server.loop import RoundsOver, run_federation
from solera.federation.server.network import WebNetwork
from solera.federation.server.plan import ServePlan
from solera.federation.server.serve import LOCK, ServeLoop, Serving
from solera.federation.server.versions import Version, Versions
from solera.federation.web.database import Place

_PLAN, _LOG = "serve.json", "server.log"
_LOOK = 3.0  # seconds between looks
_PAUSES = (2.0, 5.0, 15.0, 60.0)  # seconds before the next attempt, after so many failures in a row
_STEADY = 300.0  # seconds after which an end is no failure in a row
_MEGABYTE = 1 << 20
Tell = Callable[[dict[str, Any]], None]  # a line of events.jsonl or history.jsonl
Round = dict[str, Any]  # a line of history.jsonl


def check(folder: Path) -> None:
    """Raise an error if the federation's server does not answer."""
    connection.check(Place.read(folder).server)


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


def prepare(folder: Path, plan: ServePlan) -> FederationFolder:
    """Create the federation if there is none, and leave the settings for the loop."""
    federation, settings = FederationFolder(folder), plan.settings()
    roster = roster_of(folder, None) if settings.secure_aggregation else None
    if roster is not None:
        check_roster(len(roster.nodes), settings)
    if not federation.exists:
        federation = FederationFolder.prepare(folder, Bundle.open(plan.bundle), plan.given(), resume=False)
    if roster is not None:
        federation.keep_roster(roster)
    write_atomically(folder / _PLAN, plan.model_dump_json(indent=2) + "\n", PRIVATE)
    return federation


def serve(folder: Path, tell: Tell) -> None:
    """Serve until interrupted. A server that is away or restarted is waited for, and so is a full disk."""
    plan, failures = ServePlan.model_validate_json((folder / _PLAN).read_bytes()), 0
    with _alone(folder), _logged(folder / _LOG), _told(folder, tell):
        try:
            while True:
                began = time.monotonic()
                try:
                    _once(folder, plan, tell)
                except SoleraError as error:
                    tell({"event": "away", "message": error.message, "hint": error.hint})
                except OSError as error:
                    tell({"event": "away", "message": str(error), "hint": "check the disk of the folder"})
                failures = 0 if time.monotonic() - began > _STEADY else failures + 1
                time.sleep(_PAUSES[min(failures, len(_PAUSES) - 1)])
        finally:
            _note_stop(folder)


def _once(folder: Path, plan: ServePlan, tell: Tell) -> None:
    """Look until something is in the way."""
    network = WebNetwork(folder)
    with network.alone():
        tell({"event": "serving"})
        loop = ServeLoop(folder, plan, RoundsOver(network))
        while True:
            loop.step()
            time.sleep(_LOOK)


@contextmanager
def _told(folder: Path, tell: Tell) -> Iterator[None]:
    """Tell what is written to the journals, also while a round is under way."""
    lines = [History(folder / name) for name in ("events.jsonl", "history.jsonl")]
    over = threading.Event()

    def look() -> None:
        while True:
            is_over = over.wait(0.5)
            for each in lines:
                for line in each.new():
                    tell(line)
            if is_over:
                return

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def _logged(path: Path) -> Iterator[None]:
    """Write what the loop logs as JSON lines, at most 30 MiB of them."""
    handler = RotatingFileHandler(path, maxBytes=10 * _MEGABYTE, backupCount=2, encoding="utf-8")
    handler.setFormatter(JsonLines())
    ours = logging.getLogger("solera")
    ours.addHandler(handler)
    ours.setLevel(logging.INFO)
    try:
        yield
    finally:
        ours.removeHandler(handler)


def roll_back(folder: Path, to: int | None, reason: str = "by hand") -> Version:
    """Publish an earlier version, and let training continue from it."""
    federation, versions = FederationFolder.open(folder), Versions(folder)
    with federation.alone():
        withdrawn = versions.standing.canary or versions.standing.published
        version = versions.roll_back(reason, time.time(), to)
        saved = versions.load(version.number)
        federation.save(federation.progress, saved.shared, saved.personal)
        federation.event("version", version=withdrawn, outcome="rolled back", reason=reason)
    return version


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Refuse a second `serve` of one folder: only one may decide what is published."""
    try:
        held = FileLock(folder / LOCK, timeout=0, mode=PRIVATE).acquire()
    except Timeout:
        raise DeployError(f"{folder} is already being served", "stop the other command first") from None
    with held:
        yield


def _note_stop(folder: Path) -> None:
    serving = Serving.read(folder)
    if serving is not None:
        serving.state = "stopped"
        with suppress(OSError):  # a full disk; the time of the last look tells the same
            serving.write(folder)
