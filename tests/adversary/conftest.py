"""Federations whose server or nodes lie, driven through the real classes; figures for the threat model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cryptography", reason="needs the extra server")
pytest.importorskip("alembic", reason="needs the extra server")

from one_process import ITEMS, Local
from solera.device import keys as publisher
from solera.device.bundle import Bundle, Item
from solera.device.device import Device
from solera.device.publish import start
from solera.federation.common.authority import make_keys

_FIGURES = pytest.StashKey[dict[str, dict[str, str]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--figures", type=Path, help="where to write what every attack reached")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_FIGURES] = {}


def pytest_sessionfinish(session: pytest.Session) -> None:
    path: Path | None = session.config.getoption("--figures")
    if path is None:
        return
    known = json.loads(path.read_text()) if path.exists() else {}
    known |= session.config.stash[_FIGURES]
    path.write_text(json.dumps(dict(sorted(known.items())), indent=2, ensure_ascii=False) + "\n")


@pytest.fixture
def reached(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Tells what the attack has come to."""

    def tell(figure: str) -> None:
        marker = request.node.get_closest_marker("attack")
        name = f"{request.node.path.name}::{request.node.name}"
        request.config.stash[_FIGURES][name] = {**marker.kwargs, "after": figure}

    return tell


@pytest.fixture(scope="session")
def publisher_key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    stem = tmp_path_factory.mktemp("publisher") / "publisher"
    publisher.make_keys(stem)
    return Path(f"{stem}.key")


@pytest.fixture(scope="session")
def node_keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of twenty nodes."""
    folder = tmp_path_factory.mktemp("node-keys")
    make_keys(folder, 20)
    return folder


@pytest.fixture(scope="session")
def five_keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("five-keys")
    make_keys(folder, 5)
    return folder


@pytest.fixture
def five(world, five_keys: Path) -> Callable[..., Local]:
    """Five nodes that mask, and a roster of these five."""
    return partial(world, keys=five_keys)


@pytest.fixture
def world(publisher_key: Path, node_keys: Path, tmp_path: Path) -> Iterator[Callable[..., Local]]:
    """Makes a federation of FedMF in this process; unless told otherwise, five nodes that mask."""
    made: list[Local] = []

    def make(
        method: str = "fedmf",
        *,
        sizes: tuple[int, ...] = (3, 2, 2, 2, 2),
        masked: bool = True,
        keys: Path | None = None,
        **settings: Any,
    ) -> Local:
        folder = tmp_path / f"{len(made)}"
        folder.mkdir()
        draw = np.random.default_rng(3)
        histories = [draw.choice(ITEMS, 4 + u % 6, replace=False).tolist() for u in range(sum(sizes))]
        usual = {"secure_aggregation": True, "threshold": 0.6, "over_selection": 1.0} if masked else {}
        options = {} if method in ("fedease", "fedslist") else {"embedding_size": 4}
        made.append(
            Local(
                folder,
                key=publisher_key,
                catalogue=[Item(str(item), f"Film {item}", None) for item in range(ITEMS)],
                histories=histories,
                method=method,
                options=options,
                precision="double",
                sizes=sizes,
                settings=usual | settings,
                node_keys=(keys or node_keys) if masked else None,
            )
        )
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture(scope="module")
def bundle(publisher_key: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Of Film 0 to Film 11, and one whose title and id command a terminal."""
    items = [Item(str(number), f"Film {number}", None) for number in range(12)]
    items.append(Item("12\x1b[8m", "\x1b]0;owned\x07Film\u202e 12", None))
    path = tmp_path_factory.mktemp("bundles") / "films.bundle"
    return start("fedmf", items, path, publisher_key, options={"embedding_size": 4})


@pytest.fixture
def device(bundle: Bundle, tmp_path: Path) -> Iterator[Device]:
    """A new one, without a federation."""
    made = Device.create(tmp_path / "device", bundle)
    yield made
    made.close()
