"""What a run says before it starts: memory, time, and the limit it keeps."""

from __future__ import annotations

import numpy as np
import pytest

from made_ratings import write_ratings
from solera.core.errors import ConfigError
from solera.data.datasets import load
from solera.engine import Simulation
from solera.methods import find
from solera.runs import train
from solera.runs.plan import parse_memory
from solera.runs.presets import run_settings
from solera.runs.training import Training, plan

OPTIONS = {"embedding_size": 4, "clients_per_round": 1.0}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return load(write_ratings(tmp_path_factory.mktemp("plan") / "r.csv", users=70, items=50, each=9, seed=2))


def config(data, method="pfedrec", **more):
    return run_settings(method, data.origin.dataset, options=dict(OPTIONS), rounds=2, **more)


@pytest.mark.parametrize(
    ("text", "size"),
    [("8GB", 8_000_000_000), ("1.5GiB", 1_610_612_736), ("500 mb", 500_000_000), ("2000000", 2_000_000)],
)
def test_an_amount_of_memory(text, size):
    assert parse_memory(text) == size


@pytest.mark.parametrize("text", ["lots", "", "-1GB", "0", "8 GBs"])
def test_what_is_not_an_amount_of_memory(text):
    with pytest.raises(ConfigError, match="amount of memory"):
        parse_memory(text)


def test_rows_of_clients_are_foreseen(data):
    """Both states' rows, if every client took part: an item number and 4 values for each row."""
    training = Training(config(data), data, 1, "cpu")
    training.rounds(None, None)
    assert isinstance(training.simulation, Simulation)
    rows = training.simulation.state.personal.rows["items"]
    foreseen = plan(config(data), data).memory["clients' rows"]
    held = sum(len(rows[client].items) for client in rows) * (4 + 4 * 4)
    assert 2 * held <= foreseen <= 2.6 * held  # negatives may repeat an item


def test_a_plan_has_time_for_training_validation_and_test(data):
    seconds = plan(config(data, evaluate_every=2), data).seconds
    assert seconds.keys() == {"training", "validation", "test"}
    assert all(value > 0 for value in seconds.values())
    once = plan(config(data, evaluate_every=2, both_tests=False), data).seconds
    assert once["test"] < seconds["test"]
    twice = plan(config(data, evaluate_every=1, both_tests=False), data).seconds
    assert twice["validation"] / twice["test"] == pytest.approx(2 * once["validation"] / once["test"])


def test_a_closed_form_says_what_its_matrices_take(data):
    found = plan(run_settings("fedease", data.origin.dataset), data)
    assert found.memory["sums and solution"] == 3 * 8 * data.n_items**2
    assert found.seconds == {}


def test_sparse_sums_take_an_entry_for_every_pair_of_items():
    """Histories of 3 and 5 items have (9 + 25) / 2 = 17 entries of 12 bytes in a symmetric matrix."""
    method = find("fedease", {"neighbours": 5})
    one = method.bytes_needed(10**6, np.array([3, 5]))
    many = method.bytes_needed(10**6, np.tile([3, 5], 1000))
    assert many - one == 999 * 17 * 12
    assert one - method.bytes_needed(10**6) == 48 * 2**23 + 17 * 12


def test_a_limit_changes_no_result(data):
    free, held = train(config(data), data), train(config(data), data, memory=10**10)
    assert free.test == held.test
    assert free.history["loss"].to_list() == held.history["loss"].to_list()


def test_a_run_above_its_limit_is_refused_before_it_writes(data, tmp_path):
    with pytest.raises(ConfigError, match=r"more than --memory allows.*program and data"):
        train(config(data), data, memory=1_000_000, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
