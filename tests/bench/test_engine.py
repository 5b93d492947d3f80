"""The benchmark compares what is comparable: the compiled loop does the engines' arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from solera.data.interactions import Interactions
from solera.data.ragged import Ragged
from solera.data.sampling import ClientData
from solera.engine import BlockTraining, Simulation
from solera.methods import build


@pytest.fixture
def clients() -> ClientData:
    draw = np.random.default_rng(3)
    train = [
        sorted(draw.choice(70, size=int(draw.integers(3, 40)), replace=False).tolist()) for _ in range(25)
    ]
    return ClientData(Ragged.from_lists(train), Ragged.from_lists(train), 70)


@pytest.mark.slow
def test_compiled_loop_does_what_the_block_engine_does(clients):
    """Two rounds in single precision, where Adam amplifies what rounding leaves."""
    compiled = pytest.importorskip("solera.bench.compiled")
    method = build("fedmf", {"local_epochs": 3, "batch_size": 20, "embedding_size": 8})
    one, other = (
        Simulation(method, clients, train, seed=5, device=torch.device("cpu"), dtype=torch.float32)
        for train in (BlockTraining(threads=1), compiled.train_compiled)
    )
    for round_ in range(2):
        one.run_round(round_)
        other.run_round(round_)
    assert torch.allclose(one.state.shared["items"], other.state.shared["items"], atol=1e-5)
    users = one.state.personal.whole["user"], other.state.personal.whole["user"]
    assert torch.allclose(*users, atol=1e-4)
    assert not torch.allclose(users[0], users[0][:1].expand_as(users[0]), atol=1e-2)


@pytest.mark.slow
def test_bench_reports_ratios(dataset):
    pytest.importorskip("numba")
    from solera.bench.engine import bench_engine

    whole = dataset("filmtrust")
    users = np.repeat(np.arange(whole.n_users), whole.by_user.lengths)
    few = users < 300
    data = Interactions.from_columns(
        "few", users[few].astype(str), whole.by_user.values[few].astype(str), np.arange(few.sum())
    )
    found = bench_engine("fedmf", data, {"local_epochs": 1}, rounds=1)
    assert {"block", "block, 2 threads", "reference", "compiled"} <= set(found["seconds_per_round"])
    assert found["block_vs_reference"] > 1
    assert found["block_vs_compiled"] > 0
    assert found["largest_difference"] < 1e-4
    assert bench_engine("pfedrec", data, {}, rounds=1)["block_vs_compiled"] is None
