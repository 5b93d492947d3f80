"""EASE and SLIST, collected in one place, are FedEASE and FedSLIST without protection."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from made_ratings import write_ratings
from solera.baselines import BASELINES, SLIST, Ease, configure
from solera.baselines.slist import SLISTConfig
from solera.core.closed_form import WEIGHTS
from solera.core.errors import DataError
from solera.data.datasets import load
from solera.data.interactions import Interactions, history
from solera.data.ragged import Ragged
from solera.evaluate import split
from solera.methods import find
from solera.runs import RunConfig, train
from solera.runs.baseline import run_baseline

TWINS: list[tuple[str, str, dict[str, Any]]] = [
    ("ease", "fedease", {"reg": 20.0}),
    ("ease", "fedease", {"reg": 20.0, "recency": 0.7}),
    ("slist", "fedslist", {}),
    ("slist", "fedslist", {"decays": "0,0.9,1", "horizon": 2, "horizon_decay": 0.3, "ridge": 1.5}),
    ("slist", "fedslist", {"decays": "0.8", "popularity_discount": 0.1}),
    ("ease", "fedease", {"reg": 20.0, "recency": 0.7, "decay_days": 3.0}),
    ("ease", "fedease", {"reg": 20.0, "target_attributes": 0.1, "source_attributes": 2.0}),
    (
        "slist",
        "fedslist",
        {"decays": "0,0.9", "target_attributes": 0.2, "source_attributes": 0.5, "cold_neighbours": 2},
    ),
    ("slist", "fedslist", {"decays": "0,0.9", "decay_days": 2.0}),
    ("slist", "fedslist", {"decays": "0.5,0.9", "decay_days": 2, "least_weight": 0.1, "until_next": True}),
]


@pytest.fixture
def data(tmp_path):
    made = load(str(write_ratings(tmp_path / "ratings.csv", users=40, items=30, each=9, seed=2)))
    dated = replace(made, times=900_000_000 + 300 * made.times**2)  # with gaps that grow
    return dated.with_attributes({f"i{item}": [item % 4, f"brand {item // 7}"] for item in range(30)})


@pytest.mark.parametrize(("central", "federated", "options"), TWINS)
def test_the_same_figures(data, central, federated, options):
    config = RunConfig(method=federated, dataset="ratings", rounds=1, options=options)
    one = train(config, data, threads=1).result
    other = run_baseline(central, data, options=options).result
    for part in ("test", "test_train", "validation"):
        both = getattr(one, part), getattr(other, part)
        assert both[0].full == pytest.approx(both[1].full)
        assert both[0].sampled99 == pytest.approx(both[1].sampled99)
    assert one.test != one.test_train
    told = one.test_request_time, other.test_request_time
    assert (told[0] is None) == (told[1] is None) == (not options.get("until_next"))
    if told[0] and told[1]:
        assert told[0].full == pytest.approx(told[1].full)
        assert told[0] != one.test


@pytest.mark.parametrize(("central", "federated", "options"), TWINS)
def test_the_same_scores(data, central, federated, options):
    parts, users = split(data, "strict"), np.arange(data.n_users)
    known = history(parts, "test")
    model = BASELINES[central].fit(parts, configure(central, options), 0, None)
    run = train(RunConfig(method=federated, dataset="ratings", rounds=1, options=options), data, threads=1)
    torch.testing.assert_close(model.scores(users, known), run._simulation.serve(known)(users))
    assert isinstance(model, Ease | SLIST)
    for weights in (model.weights, run._simulation.state.shared[WEIGHTS]):
        assert weights.is_contiguous()  # otherwise every batch of users copies all of them


@pytest.mark.parametrize(("central", "federated"), [("ease", "fedease"), ("slist", "fedslist")])
def test_the_same_options_and_defaults(central, federated):
    """But for how a federation sums: sketches, sparse neighbours, and fewer numbers under noise."""
    sums = {"sketch", "neighbours", "compact", "popularity_prior", "least_clients", "newest"}
    theirs = find(federated, {}, ()).config.model_dump(exclude=sums)
    assert configure(central).model_dump() == theirs


def test_slist_by_hand():
    """One user with items 0, 1; decay 0, horizon 1: s_0 = e(0), y_0 = e(1), so S_00 = T_01 = 1.

    The diagonal is (1, 0), its mean ½. With ridge 1: B_01 = 1 / (1 + ½), divided by (1 + 1)^1.
    """
    data = Interactions.from_columns("one", ["u"] * 4, ["0", "1", "2", "3"], np.arange(4))
    parts = split(data, "strict")
    config = SLISTConfig(decays=(0.0,), horizon=1, ridge=2.0)
    model = SLIST.fit(parts, config)
    expected = torch.zeros(4, 4)
    expected[0, 1] = 1 / (1 + 2.0 * 0.25)  # of four items, one has a diagonal of 1
    torch.testing.assert_close(model.weights, expected)
    scores = model.scores(np.array([0]), Ragged.from_lists([[1, 0]]))
    torch.testing.assert_close(scores, expected[:1])
    discounted = SLIST.fit(parts, config.model_copy(update={"popularity_discount": 1.0}))
    torch.testing.assert_close(discounted.weights, expected / torch.tensor([2.0, 1, 1, 1]))


def test_a_catalogue_that_is_too_large_for_slist(data, monkeypatch):
    monkeypatch.setattr("solera.baselines.slist.MAX_BYTES", 8 * 59**2)
    with pytest.raises(DataError, match="60 × 60 for 2 decays"):
        run_baseline("slist", data)
