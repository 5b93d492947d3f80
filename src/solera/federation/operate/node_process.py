"""A node: one light process that talks to the server, and one with torch while there is work.

    python -m solera.federation.operate.node_process DEVICE --server HOST:PORT --ca ca.pem --key nodes/NAME

`solera node start` does the same in its own process. A node waits most of the time, so the process that talks
loads neither torch nor numpy nor pydantic: what needs them is done in another one.
"""

from __future__ import annotations

import argparse
import base64
import json
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, Pipe
from pathlib import Path

from filelock import FileLock, Timeout

from solera.core.errors import DeployError, SoleraError
from solera.core.files import PRIVATE
from solera.federation.common import connection
from solera.federation.common.address import Address, home_of
from solera.federation.common.json_log import current_round, in_round, log_as_json
from solera.federation.common.private_files import close, private_files, private_folder
from solera.federation.common.wire import ADMIT
from solera.federation.node.line import ConnectedError, Line, Task, UnknownError, read_key
from solera.federation.operate.processes import Process, apart, ended_by_signals

_LOG = logging.getLogger("solera.node")
WORKER_APP = "solera.federation.node.worker:answers_of"
IDLE = 60.0  # seconds without a message after which the process with torch ends
_REGISTERED = 8.0  # seconds within which a server registers a key that it was shown
_LOOK = 2.0  # seconds between looks for a server that is not there yet
_JOINED = re.compile(r"node (\d+) takes part")
_JOIN = 300.0  # seconds that a node may take to join, on a machine that is busy, while the server answers
_LEAVING = 3.0  # seconds that another node of the device may take to end
Tell = Callable[[str], None]


class Worker:
    """The process that answers: started by a message, ended after a while without one."""

    def __init__(self, device: Path, app: str, idle: float = IDLE) -> None:
        self._device, self._app, self._idle = device, app, idle
        self._home = home_of(device)
        self._process: Process | None = None
        self._pipe: Connection | None = None
        self._used = 0.0

    @property
    def log(self) -> Path:
        """What it has to say."""
        return self._home / "worker.log"

    def answer(self, task: Task) -> bytes:
        """Its answer; where it was killed, that there is none. An error if the task cannot be read."""
        try:
            if self._pipe is None or self._process is None or not self._process.is_running:
                self._pipe = self._started()
            self._pipe.send((task.kind, current_round(), task.body, task.shared))
            reply: bytes | str = self._pipe.recv()
        except (EOFError, OSError) as error:
            from solera.federation.node.worker import failed  # noqa: PLC0415 - numpy

            _LOG.warning("the process that answers has ended: %r", error)
            self.end()
            return failed()
        self._used = time.monotonic()
        if isinstance(reply, str):  # nor can it be read with the next look
            raise DeployError(f"the server sent what cannot be read: {reply}", "update Solera")
        return reply

    def rest(self) -> None:
        """End it if there was nothing to do for a while."""
        if self._process is not None and time.monotonic() - self._used > self._idle:
            self.end()

    def end(self) -> None:
        """End it."""
        if self._pipe is not None:
            self._pipe.close()
        if self._process is not None:
            self._process.stop()
        self._pipe = self._process = None

    def _started(self) -> Connection:
        self.end()
        here, there = Pipe()
        command = [sys.executable, "-m", "solera.federation.node.worker", "--pipe", str(there.fileno())]
        command += ["--device", str(self._device.resolve()), "--app", self._app]
        self._process = Process(command, {**os.environ}, self.log, pass_fds=(there.fileno(),))
        there.close()
        return here


def serve(
    device: Path,
    address: Address,
    key: Path | None,
    tell: Tell,
    *,
    app: str = WORKER_APP,
    idle: float = IDLE,
    joined: Callable[[], object] = lambda: None,
) -> None:
    """Take part until interrupted. Wait for a server that is not there yet.

    `joined` is called when the server has taken the key, before the first message is answered.
    """
    secret = None if key is None else read_key(key)
    close(private_folder(home_of(device)))
    wait_for_server(address, tell)
    if (device / "federation").exists():  # an invitation
        apart(show_key, device, address)
    line, worker = Line(address, secret), Worker(device, app, idle)
    try:
        join_server(line, key)
        joined()
        tell(f"node {line.node_id} takes part; Ctrl-C ends it; log: {worker.log}")
        for _ in answering(line, worker.answer):
            worker.rest()
    finally:
        line.stop.set()
        worker.end()
        line.leave()


def answering(line: Line, answer: Callable[[Task], bytes]) -> Iterator[None]:
    """Answer the server's messages; yields after each, and where none has come for a while."""
    while True:
        task = line.receive()
        if task is not None:
            with in_round(task.round):
                line.send(task, answer(task))
        yield


def wait_for_server(address: Address, tell: Tell) -> None:
    """Return when the server answers; an error if it is the wrong one."""
    told = False
    while True:
        try:
            connection.check(address)
        except connection.SilenceError as error:
            if not told:
                tell(f"{error.message}; waiting for it")
            told = True
            time.sleep(_LOOK)
        else:
            return


def show_key(device: Path, address: Address) -> None:
    """Show the server of an accepted invitation the key that this device has made, if that was not done."""
    from solera.federation.node.accepted import accepted  # noqa: PLC0415 - pydantic
    from solera.federation.secure.roster import read_identity_key  # noqa: PLC0415
    from solera.privacy.identity import sign  # noqa: PLC0415

    there = accepted(device)
    if there is None or str(there.address) != str(address) or there.is_shown:
        return
    code, secret = there.invitation.code, read_identity_key(there.key)
    shown = {
        "code": code.model_dump(),
        "key": there.public_key.read_text(encoding="ascii"),
        "proof": base64.b64encode(sign(secret, code.challenge)).decode(),
    }
    line = connection.Connection(address, timeout=30)
    try:
        answer = line.ask("POST", ADMIT, json.dumps(shown).encode(), {"content-type": "application/json"})
    finally:
        line.close()
    if answer.is_error:
        raise DeployError(*answer.refusal)
    there.note_shown()


def join_server(line: Line, key: Path | None) -> None:
    """Join; an error that says what to do if the server refuses."""
    until = time.monotonic() + _REGISTERED
    try:
        while True:
            try:
                line.join()
                return
            except UnknownError:
                if key is None or time.monotonic() > until:
                    raise
                time.sleep(1.0)
    except ConnectedError:
        raise DeployError(
            f"a node with the key {key} is already connected, or was within the last minute",
            "every node needs its own key; if the other node was disconnected, try again in a minute",
        ) from None
    except UnknownError:
        if key is None:
            raise DeployError(
                "the server requires a key from every node", "give --key nodes/NAME and --ca ca.pem"
            ) from None
        raise DeployError(
            f"the server does not know the key {key}",
            f"on the server: solera server register FOLDER {key}.pub",
        ) from None


def write_line(text: str) -> None:
    """Tell whoever reads what this program prints."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def run_program(serve_: Callable[[], None]) -> None:
    """Serve until a signal ends it, with a log in JSON. An error is one line of JSON."""
    log_as_json()
    with private_files(), ended_by_signals(), suppress(KeyboardInterrupt):
        try:
            serve_()
        except SoleraError as error:
            raise SystemExit(json.dumps({"error": error.message, "next": error.hint})) from None


@dataclass(frozen=True)
class Running:
    """A node's process, and the log of the process that answers for it."""

    process: Process
    worker_log: Path

    @property
    def node_id(self) -> str:
        """The number the server knows the node by; the same after a restart if the node has a key."""
        found = _JOINED.search(self.process.said())
        return found[1] if found else ""


@contextmanager
def running(
    device: Path,
    address: Address,
    key: Path | None,
    app: str = WORKER_APP,
) -> Iterator[Running]:
    """A node that the server has accepted; ended when the block is left."""
    check_key(key)
    connection.check(address)
    home = private_folder(home_of(device))
    close(home)
    command = [
        sys.executable,
        "-m",
        "solera.federation.operate.node_process",
        str(device.resolve()),
        "--server",
        str(address),
        "--app",
        app,
    ]
    command += [] if address.ca is None else ["--ca", str(address.ca)]
    command += [] if key is None else ["--key", str(key)]
    process = Process(command, {**os.environ}, home / "node.log")
    try:
        _wait(process, address)
        yield Running(process, home / "worker.log")
    finally:
        process.stop()


def check_key(key: Path | None) -> None:
    """Refuse a key that is not there."""
    if key is not None and not key.is_file():
        raise DeployError(
            f"{key} is not a file", "give --key nodes/NAME, as `solera federation keys` made it"
        )


def _wait(process: Process, address: Address) -> None:
    """Wait until the server has accepted the node. Raise an error if the node has stopped."""
    until = time.monotonic() + _JOIN
    while not _JOINED.search(process.said()):
        if not process.is_running:
            raise why_ended(process)
        if time.monotonic() > until:
            raise DeployError(
                f"the node has not joined the server at {address} within {_JOIN:.0f} s",
                f"see its log, {process.log}",
            )
        time.sleep(0.1)


@contextmanager
def alone(device: Path) -> Iterator[None]:
    """Lock the device against a second node. The lock ends with the process."""
    home = private_folder(home_of(device))
    try:
        lock = FileLock(home / "node.lock", timeout=_LEAVING, mode=PRIVATE, thread_local=False)
        held = lock.acquire(poll_interval=0.2)
    except Timeout:
        raise DeployError(
            "another program runs the node of this device",
            "end the other one, solera node start or the page of solera device open",
        ) from None
    with held:
        yield


def why_ended(process: Process) -> DeployError:
    """Return the error that the node's process has ended with."""
    lines = process.said().splitlines()
    with suppress(ValueError, KeyError, TypeError, IndexError):
        found = json.loads(lines[-1])
        return DeployError(found["error"], found["next"])
    return DeployError("the node has stopped", f"see its log, {process.log}")


def main() -> None:
    """Started by `running`."""
    parser = argparse.ArgumentParser(description="A node of a federation.")
    parser.add_argument("device", type=Path)
    parser.add_argument("--server", required=True)
    parser.add_argument("--ca", type=Path)
    parser.add_argument("--key", type=Path)
    parser.add_argument("--app", default=WORKER_APP, help="module:function from a folder to answers")
    parser.add_argument("--idle", type=float, default=IDLE)
    given = parser.parse_args()
    address = replace(Address.parse(given.server), ca=given.ca)
    run_program(lambda: serve(given.device, address, given.key, write_line, app=given.app, idle=given.idle))


if __name__ == "__main__":
    main()
