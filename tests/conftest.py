from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from solera.data.interactions import Interactions

# A busy machine is no finding: only tests that measure speed look at the clock.
settings.register_profile("everyday", deadline=None, max_examples=15)
settings.register_profile("full", deadline=None, max_examples=200)  # pytest --hypothesis-profile full
settings.load_profile("everyday")


def pytest_pycollect_makeitem(collector: pytest.Collector, obj: Any) -> list[pytest.Item] | None:
    """Classes of slow tests, which are most of all tests, are not looked into where nobody asks for them."""
    slow = isinstance(obj, type) and any(mark.name == "slow" for mark in getattr(obj, "pytestmark", ()))
    return [] if slow and collector.config.option.markexpr == "not slow" else None


def pytest_collection_finish() -> None:
    """What is imported stays: no collection of garbage looks at its millions of objects again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def dataset() -> Callable[[str], Interactions]:
    """Loads a data set from the folder in SOLERA_DATA."""
    if not os.environ.get("SOLERA_DATA"):
        pytest.skip("SOLERA_DATA is not set: it names the folder that holds the data sets")
    from solera.data.datasets import load

    return cache(load)


@pytest.fixture(scope="session")
def small_ml_100k(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of data sets with 200 users and 150 items, popular ones among them, in MovieLens' format."""
    draw = np.random.default_rng(0)
    likely = 1 / np.arange(1, 151)
    lines = []
    for user in range(1, 201):
        items = draw.choice(150, draw.integers(8, 20), replace=False, p=likely / likely.sum())
        lines += [f"{user}\t{item + 1}\t4\t{time}" for time, item in enumerate(items)]
    folder = tmp_path_factory.mktemp("data")
    (folder / "ml-100k").mkdir()
    (folder / "ml-100k" / "u.data").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.fixture
def nothing_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No file of one's own is known, and the methods, data sets and metrics of a test are forgotten."""
    from solera.data.registry import REGISTRY
    from solera.evaluate.metrics import METRICS
    from solera.methods import METHODS

    registries: tuple[dict[str, Any], ...] = (METHODS, REGISTRY, METRICS)
    before = [dict(each) for each in registries]
    monkeypatch.delenv("SOLERA_IMPORT", raising=False)
    yield
    for each, content in zip(registries, before, strict=True):
        each.clear()
        each.update(content)
