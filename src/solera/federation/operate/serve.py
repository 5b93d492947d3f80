"""Serve a federation: look again and again what is due, and go on whatever happens in between."""

from __future__ import annotations

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
from solera.federation.common.json_log import JsonLines
from solera.federation.common.settings import check_roster
from solera.federation.operate import run
from solera.federation.server.folder import FederationFolder
from solera.federation.server.loop import RoundsOver
from solera.federation.server.network import WebNetwork
from solera.federation.server.plan import ServePlan
from solera.federation.server.serve import ServeLoop
from solera.federation.server.serving import LOCK, Serving
from solera.federation.server.versions import Version, Versions

_PLAN, _LOG = "serve.json", "server.log"
_LOOK = 3.0  # seconds between looks
_PAUSES = (2.0, 5.0, 15.0, 60.0)  # seconds before the next attempt, after so many failures in a row
_STEADY = 300.0  # seconds after which an end is no failure in a row
_MEGABYTE = 1 << 20

Tell = Callable[[dict[str, Any]], None]  # a line of events.jsonl or history.jsonl


def prepare(folder: Path, plan: ServePlan) -> FederationFolder:
    """Create the federation if there is none, and leave the settings for the loop."""
    federation, settings = FederationFolder(folder), plan.settings()
    roster = run.roster_of(folder, None) if settings.secure_aggregation else None
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
    lines = [run.History(folder / name) for name in ("events.jsonl", "history.jsonl")]
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
