"""A node of a federation as a process of its own: started, waited for, ended."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from solera.core.errors import DeployError
from solera.core.files import PRIVATE
from solera.deploy.common import flower
from solera.deploy.common.flower import Address
from solera.deploy.common.private_files import close, private_folder
from solera.deploy.operate import reachability
from solera.deploy.operate.processes import Process

_JOINED = re.compile(r"node (\d+) takes part")
_JOIN = 300.0  # seconds that a node may take to join, on a machine that is busy, while the server answers
_LEAVING = 3.0  # seconds that another node of the device may take to end


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


def commands(device: Path, address: Address, key: Path | None, server_ca: Path | None = None) -> list[str]:
    """What `running` does, as lines for a shell."""
    home = flower.home_of(device)
    return [flower.as_shell(home, flower.node(device, address, key, flower.WORKER_APP, server_ca))]


@contextmanager
def running(
    device: Path,
    address: Address,
    key: Path | None,
    app: str = flower.WORKER_APP,
    server_ca: Path | None = None,
) -> Iterator[Running]:
    """A node that the server, or an edge, has accepted; ended when the block is left."""
    check_key(key)
    reachability.check(address)
    home = private_folder(flower.home_of(device))
    close(home)
    command = flower.node(device, address, key, app, server_ca)
    process = Process(command, flower.environment(home), home / "node.log")
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
    home = private_folder(flower.home_of(device))
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
