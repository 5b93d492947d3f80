"""A resumed run continues from its checkpoint."""

from __future__ import annotations

import threading

import pytest

from made_ratings import write_ratings
from solera.data.datasets import load
from solera.runs import StoppedError, train
from solera.runs.presets import run_settings


@pytest.mark.parametrize("method", ["pfedrec", "fedmf", "fedrap"])
def test_a_run_stopped_many_times_ends_with_the_same_figures(tmp_path, method):
    path = write_ratings(tmp_path / "r.csv", users=40, items=30, each=8, seed=3)
    data = load(str(path))
    options = {"embedding_size": 4, "clients_per_round": 0.3}
    config = run_settings(method, str(path), options=options, rounds=6)
    whole = train(config, data, threads=1)
    stop = threading.Event()
    stop.set()
    for _ in range(5):
        with pytest.raises(StoppedError):
            train(config, data, out=tmp_path / "run", resume=True, threads=1, stop=stop)
    last = train(config, data, out=tmp_path / "run", resume=True, threads=1)
    assert last.test == whole.test
    assert last.history["loss"].to_list() == whole.history["loss"].to_list()
