from __future__ import annotations

import os
import random
from collections.abc import Callable
from functools import cache

import pytest

from solera.data.datasets import load
from solera.data.interactions import Interactions


@pytest.fixture(scope="session")
def dataset() -> Callable[[str], Interactions]:
    """Loads a data set from the folder in SOLERA_DATA."""
    if not os.environ.get("SOLERA_DATA"):
        pytest.skip("SOLERA_DATA is not set: it names the folder that holds the data sets")
    return cache(load)


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    """60 users with 10 to 20 of 150 items, some of which are popular."""
    draw = random.Random(1)
    rows = ["user,item,time"]
    for user in range(60):
        chosen = {int(150 * draw.random() ** 2) for _ in range(12 + user % 10)}
        rows += [f"u{user},i{item},{len(rows) + n}" for n, item in enumerate(sorted(chosen))]
    path = tmp_path_factory.mktemp("data") / "ratings.csv"
    path.write_text("\n".join(rows) + "\n")
    return load(str(path))
