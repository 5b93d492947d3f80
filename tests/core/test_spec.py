from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from solera.core.errors import ConfigError
from solera.core.leaf import Home, Init, Leaf

ITEMS = Leaf("items", (4,), Home.SHARED, per_item=True, upload=True)


def test_a_personal_leaf_cannot_travel() -> None:
    with pytest.raises(ConfigError, match="'user' is personal and marked for upload"):
        Leaf("user", (4,), Home.PERSONAL, upload=True)
    with pytest.raises(ConfigError, match="'items'"):
        replace(ITEMS, home=Home.PERSONAL)


def test_shared_need_not_travel() -> None:
    assert not Leaf("frozen", (4,), Home.SHARED).upload


@pytest.mark.parametrize("per_item", [True, False])
@pytest.mark.parametrize("init", [Init.NORMAL, Init.LINEAR])
def test_initial_values_depend_on_seed_and_name_alone(init: Init, per_item: bool) -> None:
    leaf = Leaf("a", (4, 2), Home.SHARED, init, per_item=per_item, fan_in=3)
    value = leaf.initial(10, seed=7)
    assert value.shape == ((10, 4, 2) if per_item else (4, 2))
    torch.rand(3)  # torch's own generator has no part in it
    assert torch.equal(value, leaf.initial(10, seed=7))
    assert torch.equal(value, replace(leaf, home=Home.PERSONAL).initial(10, seed=7))
    assert not torch.isclose(value, leaf.initial(10, seed=8)).any()
    assert not torch.isclose(value, replace(leaf, name="b").initial(10, seed=7)).any()


def test_an_item_starts_the_same_whatever_the_size_of_the_catalogue() -> None:
    assert torch.equal(ITEMS.initial(100, seed=0)[:10], ITEMS.initial(10, seed=0))


def test_kinds_of_initial_values() -> None:
    normal = replace(ITEMS, shape=(50,)).initial(400, seed=0)
    assert float(normal.mean()) == pytest.approx(0, abs=4 / math.sqrt(20_000))
    assert float(normal.var()) == pytest.approx(1, abs=4 * math.sqrt(2 / 20_000))
    linear = replace(ITEMS, shape=(50,), init=Init.LINEAR, fan_in=16).initial(400, seed=0)
    assert float(linear.abs().max()) <= 1 / 4
    assert float(linear.abs().max()) > 0.2499
    assert float(linear.mean()) == pytest.approx(0, abs=4 / 4 / math.sqrt(3 * 20_000))
    assert not replace(ITEMS, init=Init.ZEROS).initial(10, seed=0).any()


def test_initial_values_are_doubles() -> None:
    """Whatever the precision of a run: single precision is these values, rounded."""
    leaves = [replace(ITEMS, init=init) for init in Init]
    assert {leaf.initial(5, seed=0).dtype for leaf in leaves} == {torch.float64}


def test_size_counts_one_row() -> None:
    assert [Leaf("a", shape, Home.SHARED).size for shape in ((), (3,), (3, 4))] == [1, 3, 12]
