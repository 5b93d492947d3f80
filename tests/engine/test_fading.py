"""Weight decay on all rows of FedRAP's tables, against the same computed on whole tables."""

from __future__ import annotations

from math import ceil, prod
from typing import Any, ClassVar

import pytest
import torch

from solera.core.errors import ConfigError
from solera.engine.block import BlockTraining
from solera.engine.local_training import LocalTraining
from solera.engine.reference import train_one_by_one
from solera.methods import build
from solera.methods.fedrap import KEPT
from solera.testing import MethodConformance
from solera.testing.toy import N_CLIENTS, N_ITEMS, Watched, run, toy_data

RATES = {"learning_rate": 0.05, "item_learning_rate": 2.0, "step_decay": 0.5, "reg": 0.02}
OPTIONS: dict[str, Any] = {
    **RATES,
    "embedding_size": 4,
    "local_epochs": 2,
    "negatives": 2,
    "batch_size": 24,
    "independence": 0.01,
    "decay": "all-rows",
}
both_engines = pytest.mark.parametrize(
    "train", [train_one_by_one, BlockTraining(threads=1)], ids=["reference", "block"]
)


class TestFedRAPOnAllRows(MethodConformance):
    name = "fedrap"
    options: ClassVar = {**RATES, "independence": 0.01, "decay": "all-rows"}


@pytest.mark.slow
class TestFedRAPDOnAllRows(MethodConformance):
    name = "fedrap-d"
    options: ClassVar = {**RATES, "decay": "all-rows", "batch_size": 12}


def factors() -> torch.Tensor:
    """f_u = Π_t (1 − 2 · 0.5^t · 0.02) over the steps t = 0, 1, … of two epochs of 3 samples per item."""
    steps = [2 * ceil(3 * length / 24) for length in toy_data().train.lengths.tolist()]
    return torch.tensor([prod(1 - 2 * 0.5**t * 0.02 for t in range(n)) for n in steps], dtype=torch.float64)


@both_engines
@pytest.mark.parametrize("norm", ["l1", "soft"])
def test_rows_that_a_client_does_not_touch_fade(train: LocalTraining, norm: str) -> None:
    watched = Watched(train)
    simulation = run(build("fedrap", OPTIONS | {"norm": norm}), watched, rounds=0)
    shared, own = simulation.state.shared["items"].clone(), simulation.state.personal.tables["own"].clone()
    simulation.run_round(0)
    expected = factors()
    common, personal = (table.expand(N_CLIENTS, N_ITEMS, 4).clone() for table in (shared, own[0]))
    common, personal = common * expected[:, None, None], personal * expected[:, None, None]
    for result in watched.results:
        clients = torch.from_numpy(result.clients)
        assert torch.allclose(result.params[KEPT][:, 0], expected[clients], rtol=1e-14)
        place = clients.repeat_interleave(result.upload.row_counts), result.upload.rows
        common[place], personal[place] = result.params["items"], result.params["own"]
    assert float(expected.min()) < 0.95
    assert torch.allclose(simulation.state.shared["items"], common.mean(0), rtol=1e-12)
    assert torch.allclose(simulation.state.personal.tables["own"], personal, rtol=1e-12)
    assert simulation.state.shared[KEPT].tolist() == [1.0]


@both_engines
def test_touched_rows_do_not_notice(train: LocalTraining) -> None:
    """In the first round, a client's touched rows are trained as without the others."""
    both = [Watched(train), Watched(train)]
    for decay, watched in zip(("touched", "all-rows"), both, strict=True):
        run(build("fedrap", OPTIONS | {"decay": decay}), watched, rounds=1)
    for one, two in zip(both[0].results, both[1].results, strict=True):
        for name in one.params:
            assert torch.allclose(one.params[name], two.params[name], rtol=1e-12), name


@both_engines
def test_who_stops_early_fades_less(train: LocalTraining) -> None:
    """Everybody stops after two of four epochs, because every change is less than 0.99 of the loss."""
    watched = Watched(train)
    run(build("fedrap", OPTIONS | {"local_epochs": 4, "early_stop": 0.99}), watched, rounds=1)
    for result in watched.results:
        expected = factors()[torch.from_numpy(result.clients)]
        assert torch.allclose(result.params[KEPT][:, 0], expected, rtol=1e-14)


def test_other_plugins_refuse_it() -> None:
    with pytest.raises(ConfigError, match="weight decay acts on all rows"):
        build("fedrap", {"decay": "all-rows"}, ["elastic-merge"])
    with pytest.raises(ConfigError, match="does not take the mean"):
        build("fedrap", {"decay": "all-rows"}, ["server-optimizer"])


def test_tables_that_are_too_large_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("solera.engine.store.TABLE_BYTES", 1000)
    with pytest.raises(ConfigError, match="too large to be kept in full"):
        run(build("fedrap", OPTIONS), train_one_by_one, rounds=0)
