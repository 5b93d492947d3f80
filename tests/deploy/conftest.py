"""A small catalogue, histories on it, and federations that need no network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("cryptography", reason="needs the device extra")

from federation import ITEMS, Local

from solera.device.bundle import Item
from solera.device.keys import make_keys


@pytest.fixture(scope="session")
def key(tmp_path_factory) -> Path:
    stem = tmp_path_factory.mktemp("keys") / "publisher"
    make_keys(stem)
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

    def make(method: str, options=None, precision="double", sizes=(5, 4, 2), **settings) -> Local:
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
            )
        )
        return made[-1]

    yield make
    for each in made:
        each.close()
