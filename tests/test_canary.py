"""A model without collaboration must score what chance would, or the protocol gives the answer away."""

from __future__ import annotations

import pytest

import solera


def sampled_hr(data, protocol: str, rounds: int) -> float:
    run = solera.train("local", data, protocol=protocol, rounds=rounds, seed=0)
    return run.test["sampled99"]["hr@10"]


def test_canary_scores_chance_under_strict(dataset):
    """Chance is 0.10: ten of a hundred places."""
    assert 0.07 <= sampled_hr(dataset("ml-100k"), "strict", rounds=20) <= 0.13


def test_canary_sings_under_paper(dataset):
    """The same model, the same data: under the papers' sampler it finds the answer it was never shown."""
    assert sampled_hr(dataset("ml-100k"), "paper", rounds=20) > 0.35


@pytest.mark.parametrize("name", ["filmtrust", pytest.param("douban-book", marks=pytest.mark.slow)])
def test_canary_on_other_sets(dataset, name):
    assert sampled_hr(dataset(name), "strict", rounds=5) <= 0.13
