"""A real server, started by its command, of somebody whose files are everybody's."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from strangers import connect, head, status_of, superlink_of

from commands import environment
from solera.deploy.common.authority import make_keys
from solera.deploy.common.flower import Address
from solera.deploy.operate.processes import free_port

SOLERA = (sys.executable, "-m", "solera")


class Server(NamedTuple):
    folder: Path
    keys: Path
    address: Address
    pid: int  # of the SuperLink

    def serves(self) -> bool:
        """Whether others get an answer."""
        with connect(self.address, timeout=5) as line:
            line.sendall(head("/health", "GET"))
            return status_of(line) == 200


@contextmanager
def running(*command: object) -> Iterator[subprocess.Popen[str]]:
    """A program whose umask lets everybody read and write."""
    words = [str(word) for word in command]
    with subprocess.Popen(words, umask=0, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


@contextmanager
def served(root: Path) -> Iterator[Server]:
    """A server with TLS that knows two nodes."""
    folder, keys = root / "films", root / "keys"
    make_keys(keys, 2)
    address = Address("127.0.0.1", free_port(), keys / "ca.pem")
    command = ("server", "start", folder, "--keys", keys, "--port", address.port)
    with running(*SOLERA, *command) as process:
        assert process.stdout
        said = ""
        while "nodes are online" not in said:
            said = process.stdout.readline()
            assert said, "the server has ended"
        yield Server(folder, keys, address, superlink_of(process.pid))


def open_to_others(paths: list[Path]) -> list[str]:
    """Files and folders that are not for their user alone."""
    return [f"{path} {mode:o}" for path in paths if (mode := path.stat().st_mode) & 0o077]
