"""`test` is of models that know the validation item, `test_train` of models that do not, for every method."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from made_ratings import write_ratings
from solera.baselines import BASELINES, configure
from solera.core.errors import RunError
from solera.data.datasets import load
from solera.data.interactions import history, with_validation
from solera.evaluate import Evaluator, split
from solera.runs import RunConfig, train
from solera.runs.baseline import run_baseline
from solera.runs.result import RunResult, reads_histories
from solera.runs.run import Run


@pytest.fixture
def data(tmp_path):
    return load(str(write_ratings(tmp_path / "ratings.csv", users=25, items=30, each=7, seed=1)))


def config(method: str, **changes) -> RunConfig:
    rounds = 1 if method in ("fedease", "fedslist") else 4
    options = {} if rounds == 1 else {"embedding_size": 4}
    fields = {"method": method, "dataset": "ratings", "rounds": rounds, "options": options}
    return RunConfig.model_validate(fields | changes)


def names(run) -> list[str]:
    return list(run.result.tests)


def test_a_method_that_reads_histories(data):
    run = train(config("fedease"), data, threads=1)
    assert run.result.refresh is None
    parts = split(data, "strict")
    for test, known in (("test", history(parts, "test")), ("test_train", parts.train)):
        assert getattr(run, test).full == Evaluator(parts, 0).test(run._simulation.serve(known)).full
    assert run.test_train != run.test


def test_a_method_with_a_user_vector(data, tmp_path):
    run = train(config("fedmf"), data, out=tmp_path / "run", threads=1)
    result, parts = run.result, split(data, "strict")
    assert 1 < result.selected_round <= 4
    assert result.refresh == f"user refreshed in {result.selected_round} local rounds"
    as_trained = Evaluator(parts, 0).test(run._simulation.serve(parts.train))
    assert run.test_train.full == as_trained.full != run.test.full
    opened = Run.open(tmp_path / "run", data=data)
    assert opened.evaluate().full == pytest.approx(run.test.full)
    assert opened.evaluate("test_train").full == pytest.approx(run.test_train.full)
    assert [row[0] for row in result.rows] == [
        f"{part}, {ranking}"
        for part in ("test", "test_train", "validation")
        for ranking in ("full ranking", "99 negatives")
    ]


def test_popular_negatives_are_those_of_training(data, tmp_path):
    """An opened run knows the test items; the popularity of negatives must not come from them."""
    given = config("fedmf", plugins=("popular-negatives",))
    result = train(given, data, out=tmp_path / "run", threads=1).result
    again = Run.open(tmp_path / "run", data=data).evaluate()
    assert again.full == pytest.approx(result.test.full)


def test_many_users_have_the_test_that_refreshes_nothing(data, monkeypatch):
    monkeypatch.setattr("solera.runs.training.BOTH_UP_TO", 24)
    run = train(config("fedmf"), data, threads=1)
    assert names(run) == ["test_train"]
    with pytest.raises(RunError, match="has no test"):
        _ = run.test
    assert "no test, as only the training items were known: test_train" in run.result.remarks
    assert names(train(config("fedease"), data, threads=1)) == ["test"]
    assert names(train(config("fedmf", both_tests=True), data, threads=1)) == ["test", "test_train"]


@pytest.mark.parametrize("method", ["fedmf", "fedease"])
def test_a_leaky_protocol_has_the_test_of_the_papers(data, method):
    run = train(config(method, protocol="paper"), data, threads=1)
    assert names(run) == ["test_train"]
    parts = split(data, "paper")
    assert run.test_train.full == Evaluator(parts, 0).test(run._simulation.serve(parts.train)).full
    ease = run_baseline("ease", data, protocol="paper")
    assert names(ease) == ["test_train"]
    assert ease.test_train.full == Evaluator(parts, 0).test(ease.serve(parts.train)).full


OLD = "read with the history"


@pytest.mark.parametrize(
    ("method", "old", "tests"),
    [
        ("fedmf", {"test": 1, "test_train": 1, "test_validation": 2, "validation_item": "user"}, (2, 1)),
        ("fedease", {"test": 2, "test_train": 1, "test_validation": 2, "validation_item": OLD}, (2, 1)),
        ("popularity", {"test": 1, "test_train": 1, "test_validation": 1}, (1, 1)),
        # Tested once: under a leaky protocol, with many users, or because it was asked for.
        ("fedmf", {"test": 1}, (None, 1)),
        ("fedncf+elastic-merge", {"test": 1}, (None, 1)),
        ("mf", {"test": 1}, (None, 1)),
        ("fedease", {"test": 2}, (2, None)),
        ("sasrec", {"test": 2}, (2, None)),
        ("fedslist & fedsasrec", {"test": 2}, (2, None)),
        ("fedmf", {"test": 1, "test_train": 1}, (None, 1)),
        ("fedease", {"test": 2, "test_validation": 2, "validation_item": OLD}, (2, None)),
    ],
)
def test_a_result_of_0_2_says_which_test_it_is(data, method, old, tests):
    made = train(config("fedmf"), data, threads=1).result.document()
    full = dict(made["test"]["full"])
    for name in ("format", "test", "test_train", "refresh"):
        del made[name]
    figures = {
        name: value if isinstance(value, str) else {"full": full | {"hr@10": value / 4}, "sampled99": full}
        for name, value in old.items()
    }
    result = RunResult.model_validate(made | figures | {"method": method})
    found = (each and 4 * each.full["hr@10"] for each in (result.test, result.test_train))
    assert tuple(found) == tests
    assert result.refresh == ("user" if "user" in old.values() else None)
    assert RunResult.model_validate(result.document()) == result


def test_what_reads_histories_is_what_needs_no_refresh(data):
    for name in BASELINES:
        options = {"epochs": 1} if "epochs" in BASELINES[name].config.model_fields else {}
        run = run_baseline(name, data, options=options)
        assert reads_histories(name) is (run.result.refresh is None), name


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
    assert run.result.refresh == "added to the graph"
    assert run.test_train.full == Evaluator(parts, 0).test(run.serve(parts.train)).full != run.test.full


def test_both_tests_of_baselines(data):
    run = run_baseline("mf", data, options={"epochs": 3, "embedding_size": 4})
    assert run.test_train.full == Evaluator(run.parts, 0).test(run.serve(run.parts.train)).full
    assert run.test.full == run.evaluate().full != run.test_train.full
    assert run.result.refresh == "users' parameters refreshed in 5 epochs"
    ease = run_baseline("ease", data)
    assert ease.test.full == Evaluator(ease.parts, 0).test(ease.serve(history(ease.parts, "test"))).full
    assert ease.test_train != ease.test
    popular = run_baseline("popularity", data)
    assert popular.test_train == popular.test
    assert names(run_baseline("ease", data, both_tests=False)) == ["test"]
