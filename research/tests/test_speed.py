"""The benchmark of engines: they do the same arithmetic, and their seconds are compared."""

from __future__ import annotations

import numpy as np
import pytest

from solera.data.interactions import Interactions
from solera_research.speed.engine import bench_engine


@pytest.mark.slow
def test_bench_reports_ratios(dataset):
    whole = dataset("filmtrust")
    users = np.repeat(np.arange(whole.n_users), whole.by_user.lengths)
    few = users < 300
    data = Interactions.from_columns(
        "few", users[few].astype(str), whole.by_user.values[few].astype(str), np.arange(few.sum())
    )
    found = bench_engine("fedmf", data, {"local_epochs": 1}, rounds=1)
    assert {"block", "block, 2 threads", "reference"} <= set(found["seconds_per_round"])
    assert found["block_vs_reference"] > 1
    assert found["largest_difference"] < 1e-4
