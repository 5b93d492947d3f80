"""The measure of an evaluation measures an evaluation of everybody."""

from __future__ import annotations

import pytest

from solera.data.interactions import Interactions
from solera_research.speed.evaluation import bench_evaluation


@pytest.mark.slow
def test_everybody_is_ranked_and_both_phases_are_timed():
    users = [f"u{user}" for user in range(9) for _ in range(4)]
    items = [f"i{(user + step) % 11}" for user in range(9) for step in range(4)]
    found = bench_evaluation(Interactions.from_columns("toy", users, items), repeats=2, threads=1)
    assert (found["users"], found["items"], found["repeats"], found["threads"]) == (9, 11, 2, 1)
    assert found["seconds"] > 0
    assert 0 < found["cpu_seconds"] <= found["seconds"] + 0.1
    assert found["seconds_preparing"] > 0
    assert 10**7 < found["peak_bytes"] < 10**10
