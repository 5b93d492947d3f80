from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from hypothesis import settings

from solera.data.interactions import Interactions

# A busy machine is no finding: only tests that measure speed look at the clock.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


@pytest.fixture(scope="session")
def dataset() -> Callable[[str], Interactions]:
    """Loads a data set from the folder in SOLERA_DATA."""
    if not os.environ.get("SOLERA_DATA"):
        pytest.skip("SOLERA_DATA is not set: it names the folder that holds the data sets")
    from solera.data.datasets import load

    return cache(load)


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
