"""Federations that need no network; and keys, and commands as real processes, ended whatever happens."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("cryptography", reason="needs the extra server")
pytest.importorskip("alembic", reason="needs the extra server")

from commands import environment, wait_for
from one_process import FIVE, ITEMS, Local
from solera.device import keys as publisher
from solera.device.bundle import Item
from solera.federation.common.authority import make_keys
from solera.federation.operate.processes import Process


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    make_keys(folder, 2)
    return folder


@pytest.fixture(scope="session")
def foreign_keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another federation's."""
    folder = tmp_path_factory.mktemp("foreign")
    make_keys(folder, 1)
    return folder


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Process]]:
    """Start a command that stays, and wait until it has said something."""
    logs = tmp_path_factory.mktemp("logs")
    started: list[Process] = []

    def begin(*args: object, until: str) -> Process:
        command = [sys.executable, "-m", "solera", *map(str, args)]
        process = Process(command, environment(), logs / f"{len(started)}.log")
        started.append(process)
        wait_for(process, until)
        return process

    yield begin
    for process in reversed(started):
        process.stop()


@pytest.fixture(scope="session")
def five_keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("five")
    make_keys(folder, 5)
    return folder


@pytest.fixture
def masked(local, five_keys):
    """Makes a federation of five nodes that mask, three of whom must stay."""

    def make(method: str, options=None, **settings) -> Local:
        settings = {"secure_aggregation": True, "threshold": 0.6, "over_selection": 1.0, **settings}
        if "dp" not in settings:  # one encoding for all rounds, as fine as can be
            settings.setdefault("max_norm", 1e9)
        return local(method, options, sizes=FIVE, node_keys=five_keys, **settings)

    return make


@pytest.fixture(scope="session")
def key(tmp_path_factory) -> Path:
    stem = tmp_path_factory.mktemp("keys") / "publisher"
    publisher.make_keys(stem)
    return Path(f"{stem}.key")


@pytest.fixture(scope="session")
def histories() -> list[list[int]]:
    draw = np.random.default_rng(3)
    return [draw.choice(ITEMS, 4 + user % 6, replace=False).tolist() for user in range(11)]


@pytest.fixture(scope="session")
def catalogue() -> list[Item]:
    return [Item(str(item), f"Film {item}", None) for item in range(ITEMS)]


@pytest.fixture
def local(key, histories, catalogue, tmp_path):
    """Makes a federation of three nodes in this process, of a method."""
    made: list[Local] = []

    def make(
        method: str, options=None, precision="double", sizes=(5, 4, 2), node_keys=None, **settings
    ) -> Local:
        folder = tmp_path / f"{len(made)}"
        folder.mkdir()
        made.append(
            Local(
                folder,
                key=key,
                catalogue=catalogue,
                histories=histories,
                method=method,
                options=options or {},
                precision=precision,
                sizes=sizes,
                settings=settings,
                node_keys=node_keys,
            )
        )
        return made[-1]

    yield make
    for each in made:
        each.close()
