from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from functools import cache

import pytest
from hypothesis import settings

from solera.data.interactions import Interactions

# A busy machine is no finding: only tests that measure speed look at the clock.
settings.register_profile("everyday", deadline=None, max_examples=30)
settings.register_profile("full", deadline=None, max_examples=200)  # pytest --hypothesis-profile full
settings.load_profile("everyday")


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


@pytest.fixture
def no_own_methods(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No file of one's own is known, and what a test registers is forgotten."""
    from solera.methods import METHODS

    before = dict(METHODS)
    monkeypatch.delenv("SOLERA_METHODS", raising=False)
    yield
    METHODS.clear()
    METHODS.update(before)
