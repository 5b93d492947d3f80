"""Accuracy by threshold: what is counted, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from solera.core.errors import ConfigError
from solera.data.datasets import load
from solera.data.interactions import Interactions
from solera.data.synthetic import World
from solera.evaluate import split
from solera_research.speed.reports import measure_reports
from solera_research.speed.thresholds import threshold_accuracy


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Interactions:
    file = tmp_path_factory.mktemp("world") / "plays.parquet"
    World(300, 200, 3700, seed=1).write(file)
    return load(str(file))


def test_pairs_are_those_of_at_least_so_many_clients(dataset):
    found = threshold_accuracy("fedease", dataset, (1, 3, 10_000), {"newest": 4, "neighbours": 20})
    parts = split(dataset, "strict")
    met = np.zeros((dataset.n_users, dataset.n_items))
    for user, row in enumerate(met):
        row[parts.train.row(user)[-4:]] = 1
    gram = np.triu(met.T @ met)
    assert [each["pairs"] for each in found] == [(gram >= 1).sum(), (gram >= 3).sum(), 0]
    assert all(each["reports"] == 10 and each["bytes"] == 1390 for each in found)
    assert found[0]["hr@10"] > found[2]["hr@10"]


def test_a_threshold_holds_in_every_epoch(dataset):
    """With T = 1 epochs change nothing; with more, less is opened the more of them there are."""
    pairs = {
        (least, epochs): threshold_accuracy("fedease", dataset, (least,), {"newest": 4}, epochs=epochs)[0][
            "pairs"
        ]
        for least in (1, 3)
        for epochs in (1, 2, 20)
    }
    assert pairs[1, 1] == pairs[1, 2] == pairs[1, 20]
    assert pairs[3, 1] > pairs[3, 2] > pairs[3, 20] > 0


def test_a_part_of_the_users_and_other_regularizers(dataset):
    """Fewer are ranked, and as many count; the regularizer is one of those that were named."""
    whole, part = (
        threshold_accuracy("fedease", dataset, (2,), {"newest": 4}, regs=(3, 300), users=users)[0]
        for users in (None, 50)
    )
    assert whole["pairs"] == part["pairs"] and {whole["reg"], part["reg"]} <= {3, 300}
    assert part["hr@10"] * 50 == pytest.approx(round(part["hr@10"] * 50)) and part["hr@10"] > 0


def test_methods_without_a_threshold_are_refused(dataset):
    with pytest.raises(ConfigError, match="has no threshold"):
        threshold_accuracy("fedease", dataset, (1,), {"neighbours": 0})


def test_an_epoch_of_reports_is_measured():
    (found,) = measure_reports((30,), clients=4, least_devices=3)
    assert (found["bytes_up"], found["bytes_down"]) == (30 * (32 + 139), 30 * 32 + 64)
    assert min(found["device"], found["helper"], found["server"]) > 0
    assert found["opened"] > 20
