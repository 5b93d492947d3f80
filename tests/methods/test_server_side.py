from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from solera.core.errors import ConfigError, RunError
from solera.core.leaf import Home, Leaf
from solera.core.upload import Totals, Upload
from solera.data.interactions import Interactions
from solera.data.ragged import Ragged
from solera.data.sampling import ClientData
from solera.engine.block import BlockTraining
from solera.engine.simulation import Simulation
from solera.methods import build, parts
from solera.methods.parts import Mean
from solera.runs import AfterRound, Progress, RunConfig, train
from solera.runs.folder import RunFolder

CPU = torch.device("cpu")
LEAVES = (
    Leaf("items", (2,), Home.SHARED, per_item=True, upload=True),
    Leaf("scale", (1,), Home.SHARED, upload=True),
)


def double(*values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def totals(weights: torch.Tensor | None = None) -> Totals:
    """Client 0 changes rows 0 and 1, client 1 row 1; nobody changes row 2."""
    changes = {"items": double([1, 2], [4, 4], [8, 0]), "scale": double([1], [3])}
    found = Totals(LEAVES, 3, CPU)
    found.add(Upload(torch.tensor([0, 1, 1]), torch.tensor([2, 1]), changes), weights)
    return found


SHARED = {"items": double([10, 10], [20, 20], [30, 30]), "scale": double(5), "more": double(7)}
CONTEXT = build("fedmf").context(0, 3)
CONTEXT_OF_ONE = build("fedmf", {"server_learning_rate": 1}, ["server-optimizer"]).context(0, 3)

# row-mean


@pytest.mark.parametrize("rows_at_once", [1, 2, 3])
def test_row_mean_by_hand(monkeypatch, rows_at_once) -> None:
    """Row 0 has one client, row 1 two: (4 + 8) / 2 and (4 + 0) / 2. The scale has everybody's mean."""
    monkeypatch.setattr(parts, "_PIECE_ROWS", rows_at_once)
    after = Mean(by_row=True).combine(SHARED, totals(), CONTEXT)
    assert after["items"].tolist() == [[11, 12], [26, 22], [30, 30]]
    assert after["scale"].tolist() == [7]
    assert after["more"].tolist() == [7]
    assert Mean().combine(SHARED, totals(), CONTEXT)["items"].tolist() == [[10.5, 11], [26, 22], [30, 30]]


def test_weighted_row_mean_by_hand() -> None:
    """Clients of weight 3 and 1: row 0 has the first alone, row 1 (3 · 4 + 8) / 4 and (3 · 4 + 0) / 4."""
    after = Mean(weighted=True, by_row=True).combine(SHARED, totals(double(3, 1)), CONTEXT)
    assert after["items"].tolist() == [[11, 12], [25, 23], [30, 30]]
    assert after["scale"].tolist() == [5 + (3 * 1 + 3) / 4]


# Every user may draw just one item as a negative: 3, 0 and 3.
DATA = ClientData(
    Ragged.from_lists([[0], [3], [1, 2]]), Ragged.from_lists([[0, 1, 2], [1, 2, 3], [0, 1, 2]]), n_items=4
)


def simulation(name: str, plugins: tuple[str, ...] = (), **options) -> Simulation:
    method = build(name, {"embedding_size": 2, "negatives": 1, "learning_rate": 0.1} | options, plugins)
    return Simulation(method, DATA, BlockTraining(threads=1), seed=0, device=CPU, dtype=torch.float64)


def first_change(name: str, plugins: tuple[str, ...] = ()) -> torch.Tensor:
    run = simulation(name, plugins)
    before = run.state.shared["items"].clone()
    run.run_round(0)
    return run.state.shared["items"] - before


@pytest.mark.parametrize(
    ("name", "everybody", "touching"), [("fedmf", 3, [2, 1, 1, 3]), ("fedrecon", 4, [2, 2, 2, 4])]
)
def test_row_mean_of_a_round(name: str, everybody: int, touching: list[int]) -> None:
    """Users touch items 0 and 3, 3 and 0, and 1, 2 and 3; fedrecon weighs them 1, 1 and 2."""
    mean, by_row = first_change(name), first_change(name, ("row-mean",))
    assert (mean != 0).all()
    torch.testing.assert_close(by_row * double(*touching)[:, None], mean * everybody, rtol=1e-12, atol=1e-14)


# server-optimizer


def twice(plugins: tuple[str, ...], **options) -> tuple[dict, dict]:
    """The server's state after two rounds of the same uploads, and what it started with."""
    method: Any = build("fedmf", {"server_learning_rate": "0.5*0.1^round"} | options, plugins)
    start = method.aggregate.memory({name: SHARED[name] for name in ("items", "scale")})
    state = SHARED | start
    for round_ in range(2):
        state = method.aggregate.combine(state, totals(), method.context(round_, 3))
    return state, start


def test_momentum_by_hand() -> None:
    """Δ of row 0 is (0.5, 1): m = Δ, then 1.9 Δ; x = 10 + 0.5 Δ + 0.05 · 1.9 Δ, at a falling rate."""
    state, start = twice(("server-optimizer",), server_optimizer="momentum")
    assert set(start) == {"server.m.items", "server.m.scale"}
    assert not any(value.any() for value in start.values())
    assert state["server.m.items"].tolist() == [[0.95, 1.9], [11.4, 3.8], [0, 0]]
    assert state["items"][0].tolist() == pytest.approx([10 + 0.595 * 0.5, 10 + 0.595])
    assert state["items"][2].tolist() == [30, 30]
    assert state["scale"].tolist() == pytest.approx([5 + 0.595 * 2])
    assert state["more"].tolist() == [7]


@pytest.mark.parametrize(("plugins", "change"), [((), 0.5), (("row-mean",), 1.0)])
def test_adam_by_hand(plugins: tuple[str, ...], change: float) -> None:
    """The first number of row 0 changes by 0.5 in the mean of both clients, by 1 in that of its only one.

    m: 0.1 Δ, then 0.09 Δ + 0.1 Δ = 0.19 Δ. v: 0.99e-6 + 0.01 Δ², then 0.99² e-6 + 0.0199 Δ².
    """
    state, start = twice((*plugins, "server-optimizer"))
    assert set(start) == {"server.m.items", "server.m.scale", "server.v.items", "server.v.scale"}
    assert (start["server.v.items"] == 1e-6).all()
    m, v = (0.1 * change, 0.19 * change), (0.99e-6 + 0.01 * change**2, 0.9801e-6 + 0.0199 * change**2)
    expected = 10 + 0.5 * m[0] / (v[0] ** 0.5 + 1e-3) + 0.05 * m[1] / (v[1] ** 0.5 + 1e-3)
    assert float(state["server.m.items"][0, 0]) == pytest.approx(m[1], rel=1e-12)
    assert float(state["server.v.items"][0, 0]) == pytest.approx(v[1], rel=1e-12)
    assert float(state["items"][0, 0]) == pytest.approx(expected, rel=1e-12)
    assert state["items"][2].tolist() == [30, 30]


def test_a_row_that_is_no_longer_touched_goes_on() -> None:
    """One round with a change, one without: m falls to 0.9 of it, and moves the row all the same."""
    options = {"server_optimizer": "momentum", "server_learning_rate": 1}
    method: Any = build("fedmf", options, ["server-optimizer"])
    state = SHARED | method.aggregate.memory({name: SHARED[name] for name in ("items", "scale")})
    state = method.aggregate.combine(state, totals(), CONTEXT_OF_ONE)
    nobody = Totals(LEAVES, 3, CPU)
    nobody.add(Upload(torch.tensor([2]), torch.tensor([1]), {"items": double([0, 0]), "scale": double([0])}))
    after = method.aggregate.combine(state, nobody, CONTEXT_OF_ONE)
    assert state["items"][1].tolist() == [26, 22]
    assert after["items"][1].tolist() == pytest.approx([26 + 0.9 * 6, 22 + 0.9 * 2])


def test_clients_get_nothing_of_the_memory() -> None:
    plain, mended = simulation("fedmf"), simulation("fedmf", ("row-mean", "server-optimizer"))
    assert mended.state.shared.keys() == plain.state.shared.keys() == {"items"}
    assert mended.state.memory.keys() == {"server.m.items", "server.v.items"}
    sent, sent_plain = mended.run_round(0), plain.run_round(0)
    assert (sent.bytes_up, sent.bytes_down) == (sent_plain.bytes_up, sent_plain.bytes_down)
    assert mended.state.shared.keys() == {"items"}
    assert mended.state.memory["server.m.items"].any()
    before = mended.scores(np.arange(3))
    mended.state = replace(mended.state, memory={})
    assert torch.equal(mended.scores(np.arange(3)), before)


def test_the_memory_is_restored() -> None:
    """Without it the next round would be another one."""
    plugins = ("row-mean", "server-optimizer")
    whole, resumed, forgetful = (simulation("fedmf", plugins) for _ in range(3))
    whole.run_round(0)
    server, personal = whole.state.tensors()
    resumed.restore(server, personal)
    forgetful.restore(server | forgetful.state.memory, personal)
    for run in (whole, resumed, forgetful):
        run.run_round(1)
    assert torch.equal(resumed.state.shared["items"], whole.state.shared["items"])
    assert torch.equal(resumed.state.memory["server.v.items"], whole.state.memory["server.v.items"])
    assert not torch.allclose(forgetful.state.shared["items"], whole.state.shared["items"])


def test_a_stopped_run_goes_on_with_its_memory(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    pairs = [(user, item) for user in range(12) for item in draw.permutation(20)[:6]]
    users, items = ([f"{kind}{pair[place]}" for pair in pairs] for place, kind in enumerate("ui"))
    data = Interactions.from_columns("toy", users, items, np.arange(len(pairs)))
    options = {"embedding_size": 4, "local_epochs": 1}
    plugins = ("row-mean", "server-optimizer", "popular-negatives")
    config = RunConfig(method="fedmf", dataset="toy", plugins=plugins, options=options, rounds=4)
    stop = threading.Event()

    def after_two(progress: Progress) -> None:
        if progress.rounds_done == 2:
            stop.set()

    with pytest.raises(RunError, match="stopped after round 2 of 4"):
        train(config, data, out=tmp_path / "cut", callbacks=[AfterRound(after_two)], stop=stop)
    train(config, data, out=tmp_path / "cut", resume=True)
    train(config, data, out=tmp_path / "whole")
    cut, whole = (RunFolder.open(tmp_path / name) for name in ("cut", "whole"))
    losses = [[entry.loss for entry in folder.history] for folder in (cut, whole)]
    assert losses[0] == losses[1]
    assert cut.result and whole.result
    assert cut.result.test == whole.result.test
    assert cut.result.selected_round == whole.result.selected_round
    assert "server.v.items" in whole.state().shared
    for name, value in whole.state().shared.items():
        assert torch.equal(cut.state().shared[name], value), name


# Both


@pytest.mark.parametrize("plugin", ["row-mean", "server-optimizer"])
@pytest.mark.parametrize("name", ["local", "colr", "fedrap-d", "gpfedrec", "fedem"])
def test_only_means_are_mended(name: str, plugin: str) -> None:
    with pytest.raises(ConfigError, match="does not take the mean") as caught:
        build(name, {}, [plugin])
    assert "solera methods" in caught.value.hint


def test_row_mean_of_whole_tables() -> None:
    with pytest.raises(ConfigError, match="send whole tables"):
        build("fedmf", {}, ["elastic-merge", "row-mean"])


# popular-negatives


def test_negatives_of_a_method_come_by_popularity() -> None:
    """Two clients train on item 1, and one each on 0, 2 and 3; with a power of 0 nothing is different."""
    data = ClientData(Ragged.from_lists([[0, 1], [1, 2], [3]]), Ragged.from_lists([[0, 1], [1, 2], [3]]), 5)

    def masses(**options) -> np.ndarray | None:
        method = build("fedmf", options, ["popular-negatives"])
        return Simulation(method, data, BlockTraining(threads=1), seed=0, device=CPU).data.mass

    mass = masses(popularity_power=1)
    assert mass is not None
    assert mass / mass[4] == pytest.approx([2, 3, 2, 2, 1], rel=1e-9)
    assert masses(popularity_power=0) is None


def test_nobody_knows_what_is_popular() -> None:
    with pytest.raises(ConfigError, match="its clients send nothing"):
        build("local", {}, ["popular-negatives"])
