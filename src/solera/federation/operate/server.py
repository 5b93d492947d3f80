"""The server of a federation on this machine: workers that share a socket, kept running until it ends."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout
from pydantic import ConfigDict

from solera.core.errors import ConfigError, DeployError
from solera.core.files import PRIVATE
from solera.core.frozen import Frozen
from solera.federation.common import connection
from solera.federation.common.address import Address, home_of
from solera.federation.common.authority import check_server, read_public_key
from solera.federation.common.private_files import close, private_folder
from solera.federation.operate.processes import Process, check_port
from solera.federation.web import serve
from solera.federation.web.app import Serving
from solera.federation.web.database import POSTGRES, SQLITE, Place, connect, upgrade
from solera.federation.web.store import Blobs, Nodes, Store
from solera.privacy.identity import public_identity

_START = 120.0  # seconds that workers may take to answer, on a machine that is busy
_OURS = ("*.json", "*.jsonl", "*.bundle", "checkpoint-*")  # what a federation's folder holds, beside network/
_STEADY = 10.0  # seconds after which a worker that ends is started again at once


class Known(Frozen):
    """A device's public key (DER), its name, and whether it was revoked."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")

    key: bytes
    name: str
    revoked: bool


class Devices(Frozen):
    """All that a database knows of devices and that lasts, in a backup."""

    devices: tuple[Known, ...]


class Server:
    """Workers of one federation."""

    def __init__(
        self, serving: Serving, address: Address, shared: socket.socket, *, workers: int, tls: bool
    ) -> None:
        self._serving, self._shared = serving, shared
        self._here = address.from_here() if shared.family != socket.AF_UNIX else Path(shared.getsockname())
        self._tls = tls
        self.log = home_of(serving.folder) / "server.log"
        self.store = Store(connect(serving.database))
        self._known: list[Path] = []
        self._began = 0.0
        self._replace = threading.Event()
        self._workers = [self._worker() for _ in range(workers)]

    def _worker(self) -> Process:
        self._began = time.monotonic()
        command = serve.worker(self._serving, self._shared.fileno(), tls=self._tls)
        environment = {**os.environ, "SOLERA_DATABASE": self._serving.database}
        return Process(command, environment, self.log, pass_fds=(self._shared.fileno(),))

    @property
    def pids(self) -> list[int]:
        """Of the workers."""
        return [each.pid for each in self._workers]

    def register_new(self) -> None:
        """Let devices in whose keys have come into the folder of keys."""
        if (found := node_keys(self._serving.keys)) != self._known:
            self.store.register(named(found))
            self._known = found

    def replace(self) -> None:
        """Replace the workers one by one, as after an upgrade; requests under way are finished."""
        self._replace.set()

    def look(self) -> None:
        """Start workers again that have ended."""
        if self._replace.is_set():
            self._replace.clear()
            for place, former in enumerate(self._workers):
                self._workers[place] = self._worker()
                self._wait_for(self._workers[place])
                former.stop()
        for place, worker in enumerate(self._workers):
            if not worker.is_running:
                if time.monotonic() - self._began < _STEADY:
                    time.sleep(1.0)  # what ends at once would be started for ever
                self._workers[place] = self._worker()

    def wait(self) -> None:
        """Wait until a worker answers; an error if it ends instead."""
        self._wait_for(self._workers[0])

    def _wait_for(self, worker: Process) -> None:
        until = time.monotonic() + _START
        while True:
            if not worker.is_running:
                raise DeployError(f"the server has stopped: {_last_line(worker.said())}", f"see {self.log}")
            try:
                return connection.check(self._here)
            except connection.SilenceError:
                if time.monotonic() > until:
                    raise
            time.sleep(0.05)

    def stop(self) -> None:
        """End all workers."""
        for each in self._workers:
            each.ask_to_end()
        for each in self._workers:
            each.stop()
        self._shared.close()
        self.store.close()


@contextmanager
def running(
    folder: Path,
    address: Address,
    keys: Path | None,
    *,
    database: str | None = None,
    workers: int = 1,
    path: Path | None = None,
    every: float = 20.0,
) -> Iterator[Server]:
    """A server that answers, and knows all keys there are; ended when the block is left.

    Without a database of its own, the folder has a file of SQLite. With a `path`, workers listen on that
    socket for nginx, which has the certificate.
    """
    if keys is not None:
        check_server(keys)
    if path is None:
        check_port(address.host, address.port)
    if database is not None:
        _check_database(database)
    home = _prepared(folder)
    with _alone(folder):
        url = database or f"{SQLITE}{home / 'state.db'}"
        upgrade(url)
        if database is None:
            close(home)
        here = address.from_here()
        Place(address=str(here), ca=here.ca, database=url).write(folder)
        Blobs(folder)
        shared = serve.bound(address.host, address.port, path)
        try:
            serving = Serving(folder.resolve(), url, keys, every)
            server = Server(serving, address, shared, workers=workers, tls=keys is not None and path is None)
            former = None
            if threading.current_thread() is threading.main_thread():
                former = signal.signal(signal.SIGHUP, lambda *_: server.replace())
            try:
                _take_in(home / "devices.json", server.store)
                server.register_new()
                server.wait()
                yield server
            finally:
                if former is not None:
                    signal.signal(signal.SIGHUP, former)
                server.stop()
        finally:
            shared.close()


def _lock(home: Path) -> FileLock:
    """Held by a running server, wherever it listens."""
    return FileLock(home / "server.lock", mode=PRIVATE)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    try:
        held = _lock(home_of(folder)).acquire(timeout=0)
    except Timeout:
        raise DeployError(f"another server of {folder} is running", "stop it first") from None
    with held:
        yield


def is_running(folder: Path) -> bool:
    """Whether this machine runs the server of a federation."""
    if not home_of(folder).exists():
        return False
    try:
        with _lock(home_of(folder)).acquire(timeout=0):
            return False
    except Timeout:
        return True


def _take_in(path: Path, store: Store) -> None:
    """Devices of a backup that was restored."""
    if path.exists():
        found = Devices.model_validate_json(path.read_bytes()).devices
        store.register((each.key, each.name) for each in found)
        store.revoke((each.key, each.name) for each in found if each.revoked)
        path.unlink()


def watch(server: Server, pause: float = 1.0) -> Iterator[Nodes]:
    """The devices whenever their number changes, for ever. Workers are kept running; new keys are let in."""
    last = None
    while True:
        server.look()
        nodes = last
        with suppress(DeployError):  # a database that is away comes back
            server.register_new()
            nodes = server.store.nodes()
        if nodes is not None and nodes != last:
            yield nodes
        last = nodes
        time.sleep(pause)


@contextmanager
def store_of(folder: Path) -> Iterator[Store]:
    """What the operator asks the database of a federation."""
    store = Store(connect(Place.read(folder).database))
    try:
        yield store
    finally:
        store.close()


def register(folder: Path, public_keys: list[Path]) -> list[Path]:
    """Let more devices take part; returns those that were not known."""
    keys = dict(zip([key for key, _ in named(public_keys)], public_keys, strict=True))
    with store_of(folder) as store:
        gone = {key for key, _, revoked in store.known() if revoked}
        for key, path in keys.items():
            if key in gone:
                raise DeployError(f"{path} was revoked", "the household needs a new key: invite it again")
        return [keys[key] for key in store.register(named(public_keys))]


def revoke(folder: Path, public_keys: list[Path]) -> list[Path]:
    """Turn devices away from now on; returns those that could take part."""
    keys = dict(zip([key for key, _ in named(public_keys)], public_keys, strict=True))
    with store_of(folder) as store:
        return [keys[key] for key in store.revoke(named(public_keys))]


def named(paths: list[Path]) -> list[tuple[bytes, str]]:
    """Public keys (DER) with their names."""
    return [(public_identity(read_public_key(path)), path.stem) for path in paths]


def node_keys(keys: Path | None) -> list[Path]:
    """The public keys of all nodes in a folder of keys."""
    return [] if keys is None else sorted((keys / "nodes").glob("*.pub"))


def _check_database(url: str) -> None:
    """Refuse another sort of database, and one whose libraries are missing."""
    if not url.startswith((SQLITE, POSTGRES)):
        raise ConfigError(
            f"--database {url.partition(':')[0]}:… is no database of a federation",
            "give postgresql://USER@HOST/NAME, or leave it out",
        )
    connect(url).close()


def _prepared(folder: Path) -> Path:
    """The network's part of the folder; closed to other users."""
    if not folder.exists():
        private_folder(folder)
    home = private_folder(home_of(folder))
    for each in (home, *(path for pattern in _OURS for path in folder.glob(pattern))):
        close(each)
    return home


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"
