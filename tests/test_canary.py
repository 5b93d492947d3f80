"""A model without collaboration must score what chance would, or the protocol gives the answer away."""

from __future__ import annotations

import math

import pytest

import solera
from made_ratings import write_ratings

USERS = 400
CHANCE = 0.10  # ten of a hundred places


def sampled_hr(data, protocol: str, rounds: int) -> float:
    run = solera.train("local", data, protocol=protocol, rounds=rounds, seed=0)
    return run.test_train["sampled99"]["hr@10"]


@pytest.fixture(scope="module")
def noise(tmp_path_factory):
    """Everybody's items are drawn at random: nothing can be learned, of others' items or of one's own."""
    path = tmp_path_factory.mktemp("noise") / "ratings.csv"
    return solera.load(write_ratings(path, users=USERS, items=200, each=20, seed=0))


def test_canary_scores_chance_on_noise_under_strict(noise):
    deviation = math.sqrt(CHANCE * (1 - CHANCE) / USERS)
    assert abs(sampled_hr(noise, "strict", rounds=20) - CHANCE) < 4 * deviation


def test_canary_sings_on_noise_under_paper(noise):
    """Held-out items are never negatives there, so after some rounds they are what was never said no to."""
    assert sampled_hr(noise, "paper", rounds=20) > 0.7


@pytest.mark.slow
def test_canary_scores_chance_under_strict(dataset):
    assert 0.07 <= sampled_hr(dataset("ml-100k"), "strict", rounds=20) <= 0.13


@pytest.mark.slow
def test_canary_sings_under_paper(dataset):
    """The same model, the same data: under the papers' sampler it finds the answer it was never shown."""
    assert sampled_hr(dataset("ml-100k"), "paper", rounds=20) > 0.35


@pytest.mark.parametrize("name", ["filmtrust", pytest.param("douban-book", marks=pytest.mark.slow)])
def test_canary_on_other_sets(dataset, name):
    assert sampled_hr(dataset(name), "strict", rounds=5) <= 0.13
