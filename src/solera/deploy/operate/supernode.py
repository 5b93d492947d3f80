"""A node of a federation: Flower's SuperNode, and beside it a worker that answers from one device folder."""

from __future__ import annotations

import re
import secrets
import shlex
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from solera.core.errors import DeployError
from solera.core.files import PRIVATE, write_atomically
from solera.deploy.common import flower
from solera.deploy.common.flower import CONNECTED, Address
from solera.deploy.common.private_files import close, private_folder
from solera.deploy.operate import reachability
from solera.deploy.operate.processes import Process, free_port

_JOINED = "SuperNode ID: "
_DROPPED = ". Ignoring message "  # what a SuperNode says when a run ends while it receives a message
_SECRET = "worker.secret"
_JOIN = 300.0  # seconds that a node may take to join, on a machine that is busy, while the server answers
_LEAVING = 3.0  # seconds that another node of the device may take to end
_ASK = 10.0  # seconds between looks whether it does
_SILENCES = 3  # looks in a row after which it does not; a busy server may miss one


@dataclass(frozen=True)
class Running:
    """The two processes of a node."""

    supernode: Process
    worker: Process

    @property
    def node_id(self) -> str:
        """The number the server knows the node by; the same after a restart if the node has a key."""
        found = re.search(rf"{_JOINED}(\d+)", self.supernode.said())
        return found[1] if found else ""

    def watch(self, key: Path | None) -> None:
        """Return when the node has to be started anew; an error if it ends.

        A SuperNode that has dropped a message sends the answer to it in the place of the answer to the next
        one, and so on: from then on, all its answers are late.
        """
        place = 0
        while self.supernode.is_running and self.worker.is_running:
            said, place = self.supernode.said_since(place)
            if _DROPPED in said:
                return
            time.sleep(0.5)
        if self.supernode.is_running:
            raise DeployError("the node's worker process has stopped", f"see its log, {self.worker.log}")
        raise why_ended(self.supernode, key)


def commands(device: Path, address: Address, key: Path | None) -> list[str]:
    """What `running` does, as lines for a shell."""
    home, port = flower.home_of(device), free_port()
    secret = home / _SECRET
    lines = [
        flower.supernode(device, address, key, port, secret),
        flower.worker(device, port, secret, flower.WORKER_APP, "SUPERNODE_PID"),
    ]
    make = f"(umask 077; mkdir -p {shlex.quote(str(home))}; "
    make += f"head -c 32 /dev/urandom > {shlex.quote(str(secret))})"
    return [make, *(flower.as_shell(home, line) for line in lines)]


@contextmanager
def running(
    device: Path, address: Address, key: Path | None, app: str = flower.WORKER_APP
) -> Iterator[Running]:
    """A node that the server has accepted; ended when the block is left."""
    if key is not None and not key.is_file():
        raise DeployError(
            f"{key} is not a file", "give --key nodes/NAME, as `solera federation keys` made it"
        )
    reachability.check(address)
    home = private_folder(flower.home_of(device))
    close(home)
    port, secret = free_port(), _new_secret(home)
    environment = flower.environment(home)
    line = flower.supernode(device, address, key, port, secret)
    process = Process(line, environment, home / "supernode.log")
    answers = flower.worker(device, port, secret, app, process.pid)
    worker = Process(answers, environment, home / "worker.log")
    try:
        _wait(process, address, key)
        yield Running(process, worker)
    finally:
        worker.stop()
        process.stop()


def kept_running(device: Path, address: Address, key: Path | None) -> Generator[Running]:
    """The node whenever it has been started, for ever; an error if it ends, or if there is another."""
    with _alone(private_folder(flower.home_of(device))):
        while True:
            with running(device, address, key) as node:
                yield node
                node.watch(key)


def _wait(process: Process, address: Address, key: Path | None) -> None:
    """Wait until the server has accepted the node. Raise an error if the node or server has stopped."""
    began = asked = time.monotonic()
    silences = 0
    while _JOINED not in process.said():
        if not process.is_running:
            raise why_ended(process, key)
        now = time.monotonic()
        if now - began > _JOIN:
            raise DeployError(
                f"the node has not joined the server at {address} within {_JOIN:.0f} s, although "
                "both are running",
                f"see its log, {process.log}",
            )
        if now - asked > _ASK:
            try:
                reachability.check(address)
                silences = 0
            except reachability.SilenceError:
                silences += 1
                if silences == _SILENCES:
                    raise
            asked = time.monotonic()
        time.sleep(0.2)


@contextmanager
def _alone(home: Path) -> Iterator[None]:
    """Lock the device against a second node. The lock ends with the process."""
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


def _new_secret(home: Path) -> Path:
    """What the worker shows to the SuperNode, so that no other program on this machine takes its place."""
    path = home / _SECRET
    write_atomically(path, secrets.token_bytes(32), PRIVATE)
    return path


def why_ended(process: Process, key: Path | None) -> DeployError:
    """Return an error with the cause found in Flower's log."""
    said = process.said()
    if "[code: " in said and key is None:
        return DeployError(
            "the server requires a key from every node", "give --key nodes/NAME and --ca ca.pem"
        )
    if CONNECTED in said:
        return DeployError(
            f"a node with the key {key} is already connected, or was within the last minute",
            "every node needs its own key; if the other node was disconnected, try again in a minute",
        )
    if "[code: " in said:
        return DeployError(
            f"the server does not know the key {key}",
            f"on the server: solera server register FOLDER {key}.pub",
        )
    if "parse the private key" in said:
        return DeployError(f"{key} is not a node's secret key", "give --key nodes/NAME, without .pub")
    return DeployError("the node has stopped", f"see its log, {process.log}")
