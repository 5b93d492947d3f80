"""Test items are ranked by models with and without the validation item."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from made_ratings import write_ratings
from solera.baselines import BASELINES, configure
from solera.data.datasets import load
from solera.data.interactions import with_validation
from solera.evaluate import Evaluator, split
from solera.runs import RunConfig, train
from solera.runs.baseline import run_baseline
from solera.runs.result import READ
from solera.runs.run import Run


@pytest.fixture
def data(tmp_path):
    return load(str(write_ratings(tmp_path / "ratings.csv", users=25, items=30, each=7, seed=1)))


def config(method: str, **changes) -> RunConfig:
    rounds = 1 if method in ("fedease", "fedslist") else 4
    options = {} if rounds == 1 else {"embedding_size": 4}
    fields = {"method": method, "dataset": "ratings", "rounds": rounds, "options": options}
    return RunConfig.model_validate(fields | changes)


def test_a_method_that_reads_histories(data):
    run = train(config("fedease"), data, threads=1)
    result = run.result
    assert result.validation_item == READ
    assert result.test_validation == result.test
    parts = split(data, "strict")
    short = Evaluator(parts, 0).test(run._simulation.serve(parts.train))
    assert result.test_train.full == short.full
    assert result.test_train != result.test


def test_a_method_with_a_user_vector(data, tmp_path):
    result = train(config("fedmf"), data, out=tmp_path / "run", threads=1).result
    assert 1 < result.selected_round <= 4
    assert result.validation_item == f"user refreshed in {result.selected_round} local rounds"
    assert result.test_train == result.test
    assert result.test_validation not in (None, result.test)
    opened = Run.open(tmp_path / "run", data=data)
    assert opened.evaluate().full == pytest.approx(result.test.full)
    assert opened.evaluate_again().full == pytest.approx(result.test_validation.full)
    assert [row[0] for row in result.rows] == [
        "test, full ranking",
        "test, 99 negatives",
        "test with validation item, full ranking",
        "validation, full ranking",
        "validation, 99 negatives",
    ]


def test_popular_negatives_are_those_of_training(data, tmp_path):
    """An opened run knows the test items; the popularity of negatives must not come from them."""
    given = config("fedmf", plugins=("popular-negatives",))
    result = train(given, data, out=tmp_path / "run", threads=1).result
    again = Run.open(tmp_path / "run", data=data).evaluate_again()
    assert again.full == pytest.approx(result.test_validation.full)


def test_many_users_are_tested_twice_only_if_asked(data, monkeypatch):
    monkeypatch.setattr("solera.runs.training.TWICE_UP_TO", 24)
    assert train(config("fedmf"), data, threads=1).result.test_validation is None
    assert train(config("fedmf", second_test=True), data, threads=1).result.test_validation is not None


@pytest.mark.parametrize("changes", [{"test_twice": False}, {"protocol": "paper"}])
def test_one_test(data, changes):
    result = train(config("fedmf", **changes), data, threads=1).result
    assert (result.test_train, result.test_validation, result.validation_item) == (None, None, None)
    assert len(result.rows) == 4


@pytest.mark.parametrize("name", ["mf", "ncf", "centrap"])
def test_a_refreshed_baseline(data, name):
    """Of users' parameters alone: items stay, and the new items' scores rise against others on average."""
    parts, some = split(data, "strict"), np.arange(data.n_users)
    longer = with_validation(parts)
    options = {"embedding_size": 4, "epochs": 5, "learning_rate": 0.05, "batch_size": 64}
    model = BASELINES[name].fit(parts, configure(name, options), 0, None)
    assert model.refreshes
    before = model.scores(some, parts.train)
    after = model.refreshed(longer, 20)
    items = [getattr(each, "shared" if name == "centrap" else "items") for each in (model, after)]
    assert torch.equal(*items)
    assert torch.equal(model.scores(some, parts.train), before), "the model itself does not change"
    new = torch.from_numpy(parts.validation.values).long()
    scores = (before, after.scores(some, longer.train))
    one, other = ((each - each.mean(1, keepdim=True))[torch.from_numpy(some), new].mean() for each in scores)
    assert other > one


def test_a_graph_gets_the_validation_item_as_an_edge(data):
    """Steps of no size leave all nodes as they began, so a model fitted to longer histories is the same."""
    parts = split(data, "strict")
    longer, some = with_validation(parts), np.arange(data.n_users)
    none = configure("lightgcn", {"embedding_size": 4, "epochs": 1, "learning_rate": 1e-30})
    short, long = (BASELINES["lightgcn"].fit(each, none, 0, None) for each in (parts, longer))
    before = short.scores(some, parts.train)
    assert short.refreshes
    assert torch.equal(short.refreshed(longer, 0).scores(some, longer.train), long.scores(some, longer.train))
    assert not torch.equal(before, long.scores(some, longer.train))
    assert torch.equal(before, short.scores(some, parts.train)), "the model itself does not change"
    run = run_baseline("lightgcn", data, options={"epochs": 3, "embedding_size": 4})
    assert run.result.validation_item == "added to the graph"
    assert run.result.test_train == run.result.test != run.result.test_validation


def test_both_tests_of_baselines(data):
    run = run_baseline("mf", data, options={"epochs": 3, "embedding_size": 4})
    assert run.result.test_train == run.result.test
    assert run.result.test_validation.full == run.second.full
    assert run.result.validation_item == "users' parameters refreshed in 5 epochs"
    ease = run_baseline("ease", data).result
    assert (ease.validation_item, ease.test_validation) == (READ, ease.test)
    assert ease.test_train != ease.test
    popular = run_baseline("popularity", data).result
    assert popular.test_train == popular.test_validation == popular.test
    assert run_baseline("ease", data, second_test=False).result.test_train is None
