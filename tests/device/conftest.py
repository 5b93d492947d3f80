"""A small data set with titles, runs on it, and bundles of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

USERS, ITEMS = 30, 40


@pytest.fixture(scope="session")
def data():
    from solera.data.interactions import Interactions

    draw = np.random.default_rng(7)
    users, items = [], []
    for user in range(USERS):
        for item in draw.choice(ITEMS, 8 + user % 5, replace=False):
            users.append(f"u{user}")
            items.append(str(item))
    titles = {str(item): f"Film {item} ({1960 + item})" for item in range(ITEMS)}
    titles |= {"38": "Birdcage, The (1996)", "39": "[rec] (1999)"}
    return Interactions.from_columns("small", users, items, np.arange(len(users)), titles)


@pytest.fixture(scope="session")
def keys(tmp_path_factory) -> Path:
    """The stem of a publisher's keys."""
    from solera.device.keys import make_keys

    stem = tmp_path_factory.mktemp("keys") / "publisher"
    make_keys(stem)
    return stem


@pytest.fixture(scope="session")
def trained(data, tmp_path_factory) -> Callable:
    """A finished run of a method."""
    from solera.methods import find
    from solera.runs import RunConfig, train

    network = {"embedding_size": 8, "max_length": 9, "warmup": 1, "learning_rate": 0.05}
    options: dict[str, dict[str, Any]] = {
        "fedhist": {"embedding_size": 6, "decays": "0.5,1"},
        "fedmf": {"embedding_size": 4},
        "fedsasrec": {"embedding_size": 8, "layers": 1, "max_length": 9, "clients_per_round": 1.0},
        **{f"fedsasrec-{block}": network | {"block": block} for block in ("sasrec", "ligr", "hstu")},
        "fedslist-sparse": {"neighbours": 30},
    }

    @cache
    def run(method: str):
        name = method.partition("-")[0]
        built = find(name, options.get(method, {}))
        config = RunConfig(
            method=name,
            dataset="small",
            options=built.config.model_dump(mode="json"),
            rounds=1 if name in ("fedease", "fedslist") else 3,
        )
        return train(config, data, out=tmp_path_factory.mktemp("runs") / method, threads=1)

    return run


@pytest.fixture(scope="session")
def bundled(trained, data, keys, tmp_path_factory) -> Callable[..., Path]:
    """A bundle of a method's run, with all of its weights or compact."""
    from solera.device.publish import export

    @cache
    def make(method: str, *, whole: bool = True) -> Path:
        path = tmp_path_factory.mktemp("bundles") / f"{method}.bundle"
        export(trained(method).path, path, Path(f"{keys}.key"), data=data, whole=whole)
        return path

    return make


@pytest.fixture
def device(bundled, tmp_path):
    """A new device with a bundle of fedslist."""
    from solera.device.bundle import Bundle
    from solera.device.device import Device

    made = Device.create(tmp_path / "me", Bundle.open(bundled("fedslist")))
    yield made
    made.close()
