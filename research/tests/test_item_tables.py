"""The item tables of one user, against the state they are made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import solera
from made_ratings import write_ratings
from solera_research.figures.tables import item_tables, told_apart


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "ratings.csv"
    write_ratings(path, users=12, items=20, each=7, seed=1)
    return solera.load(str(path))


def run_of(data, method: str):
    run = solera.train(method, data, rounds=2, embedding_size=4, threads=1)
    simulation: Any = run._simulation
    return item_tables(simulation, 3), simulation.state


def close(one, other) -> bool:
    return bool(np.allclose(one, np.asarray(other, np.float64), atol=1e-6))


def test_one_table_for_all(data):
    tables, state = run_of(data, "fedmf")
    assert list(tables) == ["shared", "as it is served"]
    assert close(tables["shared"], state.shared["items"])
    assert list(told_apart(tables)) == ["shared"]


def test_shared_and_personal_are_added(data):
    tables, state = run_of(data, "fedrap")
    assert close(tables["the user's own"], state.personal.tables["own"][3])
    assert close(tables["as it is served"], state.shared["items"] + state.personal.tables["own"][3])
    assert list(told_apart(tables)) == ["shared", "the user's own", "as it is served"]


def test_rows_that_are_kept_stand_over_the_shared_ones(data):
    tables, state = run_of(data, "pfedrec")
    held = state.personal.rows["items"][3]
    assert close(tables["kept by the user"][held.items], held.values)
    others = np.setdiff1d(np.arange(20), held.items)
    assert close(tables["kept by the user"][others], state.shared["items"][others])
    assert list(told_apart(tables)) == ["shared", "kept by the user"]


def test_what_a_low_rank_part_adds(data):
    tables, state = run_of(data, "pfedclr")
    low_rank = state.personal.tables["buffer.a"][3] @ state.personal.whole["buffer.b"][3]
    assert close(tables["what the user adds"], low_rank)
    assert np.linalg.matrix_rank(tables["what the user adds"], tol=1e-5) <= 2


def test_a_table_made_for_the_user(data):
    tables, state = run_of(data, "fedem")
    assert close(tables["shared, made for the user"], state.shared["items"][3])
    assert list(told_apart(tables)) == ["shared, made for the user", "the user's own"]
