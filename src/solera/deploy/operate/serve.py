"""Keep a served federation running: start its app on the server, follow it, and start it again if it ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from solera.core.errors import DeployError
from solera.core.files import PRIVATE, write_atomically
from solera.deploy.common import flower
from solera.deploy.common.credential import read_token
from solera.deploy.common.settings import check_roster
from solera.deploy.operate import reachability, submit
from solera.deploy.operate.control import Control, Ending, control
from solera.deploy.server.folder import FederationFolder
from solera.deploy.server.plan import ServePlan
from solera.deploy.server.serving import LOCK, Serving
from solera.deploy.server.versions import Version, Versions
from solera.device.bundle import Bundle

SERVE_APP = "solera.deploy.server.serve_app:app"
_PLAN = "serve.json"
_PAUSES = (2.0, 5.0, 15.0, 60.0)  # seconds before the app is started again, after so many failures in a row
_STEADY = 300.0  # seconds after which an app that ends is no failure in a row
_LEAVING = 20.0  # seconds that the app may take to end

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
    """Serve until interrupted. A server that is away or restarted is waited for, and so is a full disk."""
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
                except OSError as error:
                    tell({"event": "away", "message": str(error), "hint": "check the disk of the folder"})
                failures = 0 if time.monotonic() - began > _STEADY else failures + 1
                time.sleep(_PAUSES[min(failures, len(_PAUSES) - 1)])
        finally:
            _end(folder)


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
        ending = _follow(asked, number, lines, tell)
        write_atomically(home / f"run-{number}.log", asked.log(number), PRIVATE)
    raise DeployError(f"run {number} {ending.how}: {ending.details}", f"see {home}/run-{number}.log")


def _follow(asked: Control, number: int, lines: list[submit.History], tell: Tell) -> Ending:
    """Tell what happens until the run ends. A silence of the server is told once."""
    before = Ending("", "")
    while True:
        ending = asked.ending(number)
        if ending.details and not (ending.how or before.details):
            tell({"event": "silence", "message": ending.details})
        before = ending
        for each in lines:
            for line in each.new():
                tell(line)
        if ending.how:
            return ending
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


def _end(folder: Path) -> None:
    """End the app if its server answers, wait until it has written its last word, and note the stop."""
    with suppress(DeployError):
        address = flower.read_address(folder)
        reachability.check(address)
        with control(address, read_token(flower.home_of(folder))) as asked:
            asked.stop_all()
    with suppress(Timeout, OSError), FileLock(folder / LOCK, timeout=_LEAVING, mode=PRIVATE):
        pass
    serving = Serving.read(folder)
    if serving is not None:
        serving.state = "stopped"
        with suppress(OSError):  # a full disk; the time of the last look tells the same
            serving.write(folder)
