"""The server of a federation: Flower's SuperLink behind a guard, watched from its start to its end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from solera.core.errors import DeployError
from solera.deploy.common import flower
from solera.deploy.common.authority import check_server
from solera.deploy.common.credential import read_token, write_token
from solera.deploy.common.flower import Address
from solera.deploy.common.known_keys import KnownKeys, text_of
from solera.deploy.common.private_files import close, private_folder
from solera.deploy.operate import reachability
from solera.deploy.operate.control import Control, Nodes, control
from solera.deploy.operate.guard_check import check_guarded
from solera.deploy.operate.processes import Process, check_port

_START = 300.0  # seconds that the SuperLink may take to answer, on a machine that is busy
_OURS = ("*.json", "*.jsonl", "*.bundle", "checkpoint-*")  # what a federation's folder holds, beside flower/


def commands(folder: Path, address: Address, keys: Path | None) -> list[str]:
    """What `running` does, as lines for a shell; the files they read are written."""
    home = _prepared(folder, address, new_token=False)  # a server may be running
    lines = [flower.superlink(home, address, keys), *map(flower.register, node_keys(keys))]
    return [flower.as_shell(home, line) for line in lines]


@contextmanager
def running(
    folder: Path, address: Address, keys: Path | None, nodes_per_address: int | None = None
) -> Iterator[tuple[Process, Control]]:
    """A SuperLink that answers, and knows all node keys there are; ended when the block is left."""
    if keys is not None:
        check_server(keys)
    check_port(address.host, address.port)
    home = _prepared(folder, address, new_token=True)
    command = flower.superlink(home, address, keys)
    environment = flower.environment(home)
    if nodes_per_address is not None:
        environment[flower.NODES_PER_ADDRESS] = str(nodes_per_address)
    process = Process(command, environment, home / "superlink.log")
    try:
        _wait(process, address.from_here())
        check_guarded(address.from_here(), nodes_sign=keys is not None)
        with control(address.from_here(), read_token(home)) as asked:
            _register_all(asked, home, keys)
            yield process, asked
    finally:
        process.stop()


def _register_all(asked: Control, home: Path, keys: Path | None) -> None:
    """Make all keys in the folder known to the server, and to its app; revoked ones stay out."""
    if keys is not None:
        found = node_keys(keys)
        known = KnownKeys.change(home, lambda known: known.with_nodes(found), keys)
        assert known is not None
        asked.register([path for path in found if text_of(path) not in known.revoked])
        asked.revoke(known.revoked)  # the database may be older, restored from a backup


def watch(
    process: Process, asked: Control, folder: Path, keys: Path | None, pause: float = 3.0
) -> Iterator[Nodes]:
    """The nodes whenever their number changes, for ever; an error if the server ends.

    Keys of invited devices that have come since are registered.
    """
    last, known = None, node_keys(keys)
    while True:
        if not process.is_running:
            raise DeployError(f"the server has stopped: {_last_line(process.said())}", f"see {process.log}")
        if (now := node_keys(keys)) != known:
            _register_all(asked, flower.home_of(folder), keys)
            known = now
        if (nodes := asked.nodes()) != last:
            yield nodes
        last = nodes
        time.sleep(pause)


def register(folder: Path, public_keys: list[Path]) -> list[Path]:
    """Make keys known to the running server of a federation; returns those it did not know."""
    home = flower.home_of(folder)
    with _running_server(folder) as asked:
        known = KnownKeys.read(home)
        for path in public_keys:
            if known and text_of(path) in known.revoked:
                raise DeployError(f"{path} was revoked", "the household needs a new key: invite it again")
        new = asked.register(public_keys)
        KnownKeys.change(home, lambda known: known.with_nodes(public_keys))
    return new


def revoke(folder: Path, public_keys: list[Path]) -> list[Path]:
    """Turn nodes away from now on; returns those that the running server knew."""
    gone = {text_of(path): path for path in public_keys}
    with _running_server(folder) as asked:
        KnownKeys.change(flower.home_of(folder), lambda known: known.revoking(gone))
        return [gone[text] for text in asked.revoke(gone)]


def node_keys(keys: Path | None) -> list[Path]:
    """The public keys of all nodes in a folder of keys."""
    return [] if keys is None else sorted((keys / "nodes").glob("*.pub"))


def _prepared(folder: Path, address: Address, *, new_token: bool) -> Path:
    """Flower's part of the folder, with what a server needs to start; closed to other users."""
    if not folder.exists():
        private_folder(folder)
    home = private_folder(flower.home_of(folder))
    for each in (home, *(path for pattern in _OURS for path in folder.glob(pattern))):
        close(each)
    flower.write_address(home, address.from_here())
    write_token(home, str(address.from_here()), new=new_token)
    return home


@contextmanager
def _running_server(folder: Path) -> Iterator[Control]:
    address = flower.read_address(folder)
    reachability.check(address)
    with control(address, read_token(flower.home_of(folder))) as asked:
        yield asked


def _wait(process: Process, address: Address) -> None:
    until = time.monotonic() + _START
    while True:
        if not process.is_running:
            raise DeployError(
                f"the SuperLink has stopped: {_last_line(process.said())}", f"see its log, {process.log}"
            )
        try:
            return reachability.check(address)
        except reachability.SilenceError:
            if time.monotonic() > until:
                raise
        time.sleep(0.2)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"
