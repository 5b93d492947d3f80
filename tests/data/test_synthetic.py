"""The synthetic world has the structure it promises; a user's rows depend on seed and user alone."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import solera
from solera.core.errors import ConfigError
from solera.data import synthetic
from solera.data.synthetic import LEAST, World


@pytest.fixture(scope="module")
def world() -> World:
    return World(users=1500, items=600, interactions=30_000, seed=3)


def test_rows_do_not_depend_on_the_batches(world, tmp_path, monkeypatch):
    world.write(tmp_path / "one.parquet")
    monkeypatch.setattr(synthetic, "USERS_AT_A_TIME", 17)
    World(1500, 600, 30_000, seed=3).write(tmp_path / "many.parquet")
    one, many = pl.read_parquet(tmp_path / "one.parquet"), pl.read_parquet(tmp_path / "many.parquet")
    assert one.equals(many)
    World(1500, 600, 30_000, seed=4).write(tmp_path / "other.parquet")
    assert not one.equals(pl.read_parquet(tmp_path / "other.parquet"))


def test_nobody_meets_an_item_twice_and_time_goes_on(world):
    users = np.arange(world.users)
    found = world.histories(users)
    assert len(np.unique(found.rows * world.items + found.values)) == len(found.values)
    assert found.lengths.min() >= LEAST
    assert 0.9 * 30_000 < len(found.values) < 1.1 * 30_000
    steps = np.diff(world.times(users, found))
    assert (steps[np.diff(found.rows) == 0] > 0).all()


def test_activity_is_log_normal(world):
    """Without the `LEAST` that everybody has, the logarithm has standard deviation 1 and no skew."""
    logs = np.log(World(20_000, 5000, 2_000_000).lengths - LEAST)
    assert logs.std() == pytest.approx(1, abs=0.05)
    assert np.median(logs) == pytest.approx(logs.mean(), abs=0.05)


def test_successors_stay_in_the_community_and_follow_often(world):
    assert (world.communities[world.successors] == world.communities).all()
    assert sorted(world.successors) == list(range(world.items))
    found = world.histories(np.arange(world.users))
    pairs = np.diff(found.rows) == 0
    follows = world.successors[found.values[:-1]] == found.values[1:]
    assert 0.15 < follows[pairs].mean() < 0.35


def test_draws_follow_the_stated_chances(world):
    """Of 1,500 users, the share of first items in the main community is 0.65 and a little from elsewhere."""
    users = np.arange(world.users)
    main, _ = world.tastes(users)
    found = world.histories(users)
    share = (world.communities[found.values[found.offsets[:-1]]] == main).mean()
    assert share == pytest.approx(0.65 + 0.1 / world.n_communities, abs=0.04)
    assert world.chances(users[:5]).sum(axis=1) == pytest.approx(np.ones(5))


def test_whoever_learns_the_structure_is_better_than_popularity(world, tmp_path):
    """Communities make the closed form better than popularity, and the order makes fedslist better still."""
    world.write(tmp_path / "world.parquet")
    data = solera.load(tmp_path / "world.parquet")
    popularity = solera.baseline("popularity", data).result.test.full["ndcg@10"]
    communities = solera.train("fedease", data).test.full["ndcg@10"]
    order = solera.train("fedslist", data).test.full["ndcg@10"]
    assert communities > 1.5 * popularity
    assert order > 1.5 * communities


@pytest.mark.parametrize(
    ("sizes", "words"),
    [((0, 100, 500), "too few"), ((100, 100, 499), "too few for 100 users"), ((10, 40, 1000), "too many")],
)
def test_sizes_that_leave_no_room(sizes, words):
    with pytest.raises(ConfigError, match=words):
        World(*sizes)
