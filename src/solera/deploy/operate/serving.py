"""A node at work: one light process that talks to the server, and one with torch while there is work.

    python -m solera.deploy.operate.serving DEVICE --superlink HOST:PORT --ca ca.pem --key nodes/NAME

`solera node start` does the same in its own process. The process that talks imports Flower's messages, and
neither torch nor Flower's servers.
"""

from __future__ import annotations

import argparse
import base64
import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection, Pipe
from pathlib import Path

import httpx
from flwr.app import Message

from solera.core.errors import DeployError, SoleraError
from solera.core.text import clean_text
from solera.deploy.common import flower
from solera.deploy.common.flower import ADMIT, WORKER_APP, Address
from solera.deploy.common.frames import LARGEST, LARGEST_AT_EDGE
from solera.deploy.common.json_log import current_round, in_round, log_as_json
from solera.deploy.common.messages import KINDS, from_content, to_content
from solera.deploy.common.private_files import close, private_files, private_folder
from solera.deploy.common.protocol import Packet, RefusalError, declined
from solera.deploy.node.accepted import accepted
from solera.deploy.node.behind_edge import BehindEdge
from solera.deploy.node.line import (
    ConnectedError,
    Line,
    UnknownError,
    failure,
    keep_beating,
    read_key,
    trust,
)
from solera.deploy.operate import reachability
from solera.deploy.operate.processes import Process, ended_by_signals
from solera.deploy.secure.roster import read_identity_key
from solera.privacy.secagg.identity import sign

_LOG = logging.getLogger("solera.node")
IDLE = 60.0  # seconds without a message after which the process with torch ends
_REGISTERED = 8.0  # seconds within which a server registers a key that it was shown
_LOOK = 2.0  # seconds between looks for a server that is not there yet
Tell = Callable[[str], None]


class Worker:
    """The process that answers: started by a message, ended after a while without one."""

    def __init__(self, device: Path, app: str, idle: float = IDLE) -> None:
        self._device, self._app, self._idle = device, app, idle
        self._home = flower.home_of(device)
        self._process: Process | None = None
        self._pipe: Connection | None = None
        self._used = 0.0

    @property
    def log(self) -> Path:
        """What it has to say."""
        return self._home / "worker.log"

    def answer(self, kind: str, packet: Packet) -> Packet | None:
        """Its answer; None if it could not make one."""
        try:
            if self._pipe is None or self._process is None or not self._process.is_running:
                self._pipe = self._started()
            self._pipe.send((kind, packet, current_round()))
            reply: Packet | None = self._pipe.recv()
        except (EOFError, OSError) as error:  # it was killed
            _LOG.warning("the process that answers has ended: %r", error)
            self.end()
            return None
        self._used = time.monotonic()
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
        command = flower.worker(self._device, there.fileno(), self._app)
        environment = flower.environment(self._home)
        self._process = Process(command, environment, self.log, pass_fds=(there.fileno(),))
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
    server_ca: Path | None = None,
    joined: Callable[[], None] = lambda: None,
) -> None:
    """Take part until interrupted. Wait for a server that is not there yet.

    `joined` is called when the server has taken the key, before the first message is answered. With
    `server_ca`, the address is that of an edge, and the server behind it has a certificate of that authority.
    """
    secret = None if key is None else read_key(key)
    close(private_folder(flower.home_of(device)))
    wait_for_server(address, tell)
    show_key(device, address)
    largest = LARGEST if server_ca is None else LARGEST_AT_EDGE
    line = Line(address, secret, trusted=trust(address), largest=largest)
    worker = Worker(device, app, idle)
    answers: Callable[[str, Packet], Packet | None] = worker.answer
    if server_ca is not None and key is not None:
        answers = partial(BehindEdge(key, server_ca, flower.home_of(device)).answer, worker.answer)
    try:
        join_server(line, key)
        joined()
        tell(f"node {line.node_id} takes part; Ctrl-C ends it; log: {worker.log}")
        for _ in answering(line, answers):
            worker.rest()
    finally:
        line.stop.set()
        worker.end()
        line.leave()


def answering(line: Line, answers: Callable[[str, Packet], Packet | None]) -> Iterator[None]:
    """Answer the server's messages; yields after each, and where none has come for a while."""
    threading.Thread(target=keep_beating, args=([line], line.stop), daemon=True).start()
    while True:
        message = line.receive()
        if message is not None:
            began = time.perf_counter()
            line.send(reply_to(message, answers), time.perf_counter() - began)
        yield


def reply_to(message: Message, answers: Callable[[str, Packet], Packet | None]) -> Message:
    """A message's answer; an error without details if there is none."""
    kind = KINDS.get(message.metadata.message_type)
    if kind is None or not message.has_content():
        return failure(message)
    try:
        with in_round(message.metadata.group_id):
            reply = answers(kind, from_content(message.content))
    except RefusalError as error:  # what came cannot be read
        reply = declined(error.message)
    return failure(message) if reply is None else Message(to_content(reply), reply_to=message)


def wait_for_server(address: Address, tell: Tell) -> None:
    """Return when the server answers; an error if it is the wrong one."""
    told = False
    while True:
        try:
            reachability.check(address)
        except reachability.SilenceError as error:
            if not told:
                tell(f"{error.message}; waiting for it")
            told = True
            time.sleep(_LOOK)
        else:
            return


def show_key(device: Path, address: Address) -> None:
    """Show the server of an accepted invitation the key that this device has made, if that was not done."""
    there = accepted(device)
    if there is None or str(there.address) != str(address) or there.is_shown:
        return
    code, secret = there.invitation.code, read_identity_key(there.key)
    shown = {
        "code": code.model_dump(),
        "key": there.public_key.read_text(encoding="ascii"),
        "proof": base64.b64encode(sign(secret, code.challenge)).decode(),
    }
    with httpx.Client(verify=trust(address), timeout=30) as client:
        answer = client.post(f"https://{address}{ADMIT}", json=shown)
    if answer.status_code != httpx.codes.OK:
        try:
            said = answer.json()
            raise DeployError(clean_text(str(said["error"])), clean_text(str(said["next"])))
        except (ValueError, KeyError, TypeError):
            raise DeployError(
                f"the server does not take invitations ({answer.status_code})", "ask its operator"
            ) from None
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
    logging.getLogger("httpx").setLevel(logging.WARNING)  # otherwise a line for every request
    with private_files(), ended_by_signals(), suppress(KeyboardInterrupt):
        try:
            serve_()
        except SoleraError as error:
            raise SystemExit(json.dumps({"error": error.message, "next": error.hint})) from None


def main() -> None:
    """Started by supernode.py."""
    parser = argparse.ArgumentParser(description="A node of a federation.")
    parser.add_argument("device", type=Path)
    parser.add_argument("--superlink", required=True)
    parser.add_argument("--ca", type=Path)
    parser.add_argument("--key", type=Path)
    parser.add_argument("--app", default=WORKER_APP, help="module:function from a folder to answers")
    parser.add_argument("--idle", type=float, default=IDLE)
    parser.add_argument("--server-ca", type=Path)
    given = parser.parse_args()
    address = replace(Address.parse(given.superlink), ca=given.ca)
    run_program(
        lambda: serve(
            given.device,
            address,
            given.key,
            write_line,
            app=given.app,
            idle=given.idle,
            server_ca=given.server_ca,
        )
    )


if __name__ == "__main__":
    main()
