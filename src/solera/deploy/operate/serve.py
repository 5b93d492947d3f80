"""Keep a served federation running: start its app on the server, follow it, and start it again if it ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from solera.core.errors import DeployError
from solera.core.files import PRIVATE, write_atomically
from solera.deploy.common import flower
from solera.deploy.common.credential import read_token
from solera.deploy.common.settings import check_roster
from solera.deploy.operate import reachability, submit
from solera.deploy.operate.control import Control, control
from solera.deploy.server.folder import FederationFolder
from solera.deploy.server.plan import ServePlan
from solera.deploy.server.serving import Serving
from solera.deploy.server.versions import Version, Versions
from solera.device.bundle import Bundle

SERVE_APP = "solera.deploy.server.serve_app:app"
_PLAN = "serve.json"
_PAUSES = (2.0, 5.0, 15.0, 60.0)  # seconds before the app is started again, after so many failures in a row
_STEADY = 300.0  # seconds after which an app that ends is no failure in a row

Tell = Callable[[dict[str, Any]], None]  # a line of events.jsonl or history.jsonl


def prepare(folder: Path, plan: ServePlan) -> FederationFolder:
    """Create the federation if there is none, and leave the settings for the server's app."""
    federation, settings = FederationFolder(folder), plan.settings()
    roster = submit.roster_of(folder, None) if settings.secure_aggregation else None
    if roster is not None:
        check_roster(len(roster.nodes), settings)
    if not federation.exists:
        federation = FederationFolder.prepare(folder, Bundle.open(plan.bundle), plan.given(), resume=False)
    if roster is not None:
        federation.keep_roster(roster)
    write_atomically(folder / _PLAN, plan.model_dump_json(indent=2) + "\n", PRIVATE)
    return federation


def serve(folder: Path, tell: Tell) -> None:
    """Serve until interrupted. A server that is away, or that was restarted, is waited for."""
    failures = 0
    lines = [submit.History(folder / name) for name in ("events.jsonl", "history.jsonl")]
    with _alone(folder):
        try:
            while True:
                began = time.monotonic()
                try:
                    _once(folder, lines, tell)
                except DeployError as error:
                    tell({"event": "away", "message": error.message, "hint": error.hint})
                failures = 0 if time.monotonic() - began > _STEADY else failures + 1
                time.sleep(_PAUSES[min(failures, len(_PAUSES) - 1)])
        finally:
            _note_stop(folder)


def _once(folder: Path, lines: list[submit.History], tell: Tell) -> None:
    """Start the app and follow it until it ends."""
    address = flower.read_address(folder)
    reachability.check(address)
    home = flower.home_of(folder)
    app = flower.write_app(home, SERVE_APP)
    with control(address, read_token(home)) as asked:
        asked.stop_all()
        number = asked.start(app, {"folder": str(folder.resolve())})
        tell({"event": "serving", "run": number})
        try:
            _follow(asked, number, lines, tell)
        except KeyboardInterrupt:
            asked.stop(number)
            raise
        ending = asked.ending(number)
        write_atomically(home / f"run-{number}.log", asked.log(number), PRIVATE)
    raise DeployError(f"run {number} {ending.how}: {ending.details}", f"see {home}/run-{number}.log")


def _follow(asked: Control, number: int, lines: list[submit.History], tell: Tell) -> None:
    while not asked.ending(number).how:
        for each in lines:
            for line in each.new():
                tell(line)
        time.sleep(1.0)


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
    """Refuse a second `serve` of one folder: each would end the other's run."""
    try:
        held = FileLock(folder / "supervisor.lock", timeout=0, mode=PRIVATE).acquire()
    except Timeout:
        raise DeployError(f"{folder} is already being served", "stop the other command first") from None
    with held:
        yield


def _note_stop(folder: Path) -> None:
    serving = Serving.read(folder)
    if serving is not None:
        serving.state = "stopped"
        serving.write(folder)
