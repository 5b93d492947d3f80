"""PLGC on FedMF, which is the method `plgc`, and on FedRAP, whose own two tables it mixes."""

from __future__ import annotations

import pytest
import torch

from solera.core.context import Batch
from solera.core.errors import ConfigError
from solera.core.leaf import Params
from solera.engine.block import BlockTraining
from solera.methods import build
from solera.methods.plgc import MixedAdditive
from solera.testing.toy import identical, run, state

SMALL = {"embedding_size": 4, "local_epochs": 2, "negatives": 2, "item_learning_rate": "5*0.9^round"}


def test_fedmf_with_plgc_is_plgc() -> None:
    plugged, named = build("fedmf", SMALL, ["plgc"]), build("plgc", SMALL)
    assert (plugged.name, named.name) == ("fedmf+plgc", "plgc")
    assert plugged.choices == named.choices
    assert plugged.config.model_dump() | {"mixing": True} == named.config.model_dump()
    engine = BlockTraining(threads=1)
    assert identical(state(run(plugged, engine, rounds=2)), state(run(named, engine, rounds=2)))


def test_fedmf_with_plgc_has_no_other_optimizer() -> None:
    with pytest.raises(ConfigError, match="no option 'optimizer'"):
        build("fedmf", {"optimizer": "adam"}, ["plgc"])


@pytest.mark.parametrize("name", ["plgc", "plgc-dlgm", "plgc-err"])
def test_start_of_the_user_vector(name: str) -> None:
    """As a linear layer with 16 inputs: uniform between −1/4 and 1/4."""
    normal, linear = (
        next(leaf for leaf in build(name, {"embedding_size": 16, **more}).leaves if leaf.name == "user")
        for more in ({}, {"user_start": "linear"})
    )
    assert float(normal.initial(1, 0).abs().max()) > 1
    assert 0.2 < float(linear.initial(1, 0).abs().max()) <= 0.25


def mixed(redundancy: float = 0.0) -> MixedAdditive:
    view = build("fedrap", {"embedding_size": 2, "redundancy": redundancy}, ["plgc"]).view
    assert isinstance(view, MixedAdditive)
    return view


def test_fedrap_has_no_third_table() -> None:
    method = build("fedrap", {}, ["plgc"])
    assert {leaf.name for leaf in method.leaves if leaf.per_item} == {"items", "own"}
    assert {leaf.name for leaf in method.leaves if leaf.sent_as} == {"items"}


def test_mix_of_fedraps_tables_by_hand() -> None:
    """tr C Cᵀ = 1 + 4 = 5 and tr D Dᵀ = 9 + 1 = 10, so λ = 10 / 15 = 2/3."""
    view = mixed()
    tables = {"items": torch.tensor([[1.0, 0.0], [0.0, 2.0]]), "own": torch.tensor([[3.0, 0.0], [0.0, 1.0]])}
    params = tables | view.derive(tables)
    assert {name: params[name].tolist() for name in ("items.trace", "own.trace")} == {
        "items.trace": [5.0],
        "own.trace": [10.0],
    }
    assert torch.allclose(view.see(params), torch.tensor([[7 / 3, 0.0], [0.0, 4 / 3]]))
    assert float(view.share(params)) == pytest.approx(2 / 3)


def test_traces_follow_both_tables() -> None:
    """A row of C grows from (1, 0) to (2, 0): 4 − 1 more. A row of D shrinks from (3, 0) to 0: 9 less."""
    before = {"items": torch.tensor([[1.0, 0.0]]), "own": torch.tensor([[3.0, 0.0]])}
    before |= {"items.trace": torch.tensor([5.0]), "own.trace": torch.tensor([10.0])}
    now = {"items": torch.tensor([[2.0, 0.0]]), "own": torch.tensor([[0.0, 0.0]])}
    found = mixed().observe(before, now)
    assert {name: value.tolist() for name, value in found.items()} == {
        "items.trace": [8.0],
        "own.trace": [1.0],
    }


@pytest.mark.parametrize("redundancy", [0.0, 0.5])
def test_gradients_are_those_of_autograd(redundancy: float) -> None:
    method = build("fedrap", {"embedding_size": 3, "redundancy": redundancy, "independence": 0.3}, ["plgc"])
    draw = torch.Generator().manual_seed(0)
    params: Params = {
        leaf.name: torch.rand((5, *leaf.shape) if leaf.per_item else leaf.shape, generator=draw).double()
        + 0.1
        for leaf in method.leaves
    }
    weights = torch.full((5,), 0.2, dtype=torch.float64)
    batch = Batch(weights, weights * torch.tensor([1, 0, 1, 0, 0]))
    context = method.context(3, 5)
    moved = method.update.stages(context)[0].moves[0].all_leaves
    _, found = method.gradient(params, batch, context, moved)
    _, expected = method._autograd(params, batch, context, moved, method.view)
    for name in moved:
        assert torch.allclose(found[name], expected[name], rtol=1e-9, atol=1e-12), name


@pytest.mark.parametrize("plugin", ["dual-personalization", "low-rank"])
def test_another_use_of_fedraps_tables_is_refused(plugin: str) -> None:
    with pytest.raises(ConfigError, match="FedRAP's own two tables"):
        build("fedrap", {}, [plugin, "plgc"])
