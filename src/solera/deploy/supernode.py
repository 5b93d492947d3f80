"""A node of a federation: Flower's SuperNode, and beside it a worker that answers from one device folder."""

from __future__ import annotations

import re
import secrets
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from solera.core.errors import DeployError
from solera.deploy import flower, reach
from solera.deploy.flower import Address
from solera.deploy.processes import Process, free_port

_CONNECTED = "SuperNode ID: "
_SECRET = "worker.secret"


@dataclass(frozen=True)
class Running:
    """A node's two programs."""

    supernode: Process
    worker: Process

    @property
    def node_id(self) -> str:
        """The number the server knows the node by; the same after a restart if the node has a key."""
        found = re.search(rf"{_CONNECTED}(\d+)", self.supernode.said())
        return found[1] if found else ""

    def watch(self, key: Path | None) -> None:
        """Return never; an error if the node ends."""
        while self.supernode.is_running and self.worker.is_running:
            time.sleep(0.5)
        if self.supernode.is_running:
            raise DeployError("what answers for the node has ended", f"see its log, {self.worker.log}")
        raise why_ended(self.supernode, key)


def commands(device: Path, address: Address, key: Path | None) -> list[str]:
    """What `running` does, as lines for a shell."""
    home, port = flower.home_of(device), free_port()
    secret = home / _SECRET
    lines = [
        flower.supernode(device, address, key, port, secret),
        flower.worker(device, port, secret, flower.WORKER_APP, "SUPERNODE_PID"),
    ]
    make = f"(umask 077; head -c 32 /dev/urandom > {shlex.quote(str(secret))})"
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
    reach.check(address)
    home = flower.home_of(device)
    port, secret = free_port(), _new_secret(home)
    environment = flower.environment(home)
    line = flower.supernode(device, address, key, port, secret)
    process = Process(line, environment, home / "supernode.log")
    answers = flower.worker(device, port, secret, app, process.pid)
    worker = Process(answers, environment, home / "worker.log")
    try:
        until = time.monotonic() + 60
        while _CONNECTED not in process.said():
            if not process.is_running:
                raise why_ended(process, key)
            if time.monotonic() > until:
                raise DeployError(f"the server at {address} does not answer the node", f"see {process.log}")
            time.sleep(0.2)
        yield Running(process, worker)
    finally:
        worker.stop()
        process.stop()


def _new_secret(home: Path) -> Path:
    """What the worker shows to the SuperNode, so that no other program on this machine takes its place."""
    home.mkdir(parents=True, exist_ok=True)
    path = home / _SECRET
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(secrets.token_bytes(32))
    return path


def why_ended(process: Process, key: Path | None) -> DeployError:
    """An error that says what Flower's log says."""
    said = process.said()
    if "[code: " in said and key is None:
        return DeployError("the server asks nodes for a key", "give --key nodes/NAME and --ca ca.pem")
    if "[code: " in said:
        return DeployError(
            f"the server does not know the key {key}",
            f"on the server: solera server register FOLDER {key}.pub",
        )
    if "parse the private key" in said:
        return DeployError(f"{key} is not a node's secret key", "give --key nodes/NAME, without .pub")
    return DeployError("the node has ended", f"see its log, {process.log}")
