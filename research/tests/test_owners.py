"""Users served with item tables that are not theirs, against the tables one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import solera
from made_ratings import write_ratings
from solera_research.figures.tables import (
    ANOTHERS,
    OWN,
    OWNERS,
    SERVED,
    SHARED,
    TAILORED,
    THE_SERVERS,
    THEIR_OWN,
    item_tables,
    owners,
    scores_with,
)

USERS = 12


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "ratings.csv"
    return solera.load(str(write_ratings(path, users=USERS, items=20, each=7, seed=1)))


def run_of(data, method: str):
    return solera.train(method, data, rounds=2, embedding_size=4, clients_per_round=1, threads=1)


@pytest.mark.parametrize("method", ["pfedrec", "fedrap", "pfedclr", "fedem", "plgc"])
def test_scores_are_those_of_the_owner_s_table(data, method):
    run = run_of(data, method)
    simulation = run._simulation
    assert owners(run._simulation) == OWNERS
    for user in (0, 3, USERS - 1):
        own, next_ = item_tables(run._simulation, user), item_tables(run._simulation, (user + 1) % USERS)
        wanted = {
            THEIR_OWN: own[SERVED],
            THE_SERVERS: own.get(SHARED, own.get(TAILORED)),
            ANOTHERS: next_[SERVED],
        }
        held = simulation.held(np.array([user]))
        for owner, table in wanted.items():
            found = scores_with(simulation, owner, np.array([user]))
            with torch.no_grad():
                by_hand = simulation.method.scorer.score(held, torch.from_numpy(table).float())
            assert torch.allclose(found, by_hand.reshape(found.shape), atol=1e-5)
    assert (wanted[THEIR_OWN] != wanted[ANOTHERS]).any()


def test_a_user_s_vector_times_the_table_is_the_score(data):
    run = run_of(data, "pfedclr")
    found = scores_with(run._simulation, ANOTHERS, np.array([3]))[0].numpy()
    by_hand = (
        item_tables(run._simulation, 4)[SERVED]
        @ run._simulation.state.personal.whole["user"][3].double().numpy()
    )
    assert np.allclose(np.sort(found), found[np.argsort(by_hand)], atol=1e-6)


def test_with_their_own_tables_nothing_changes(data):
    run = run_of(data, "fedrap")
    everyone = np.arange(USERS)
    assert torch.equal(scores_with(run._simulation, THEIR_OWN, everyone), run._simulation.scores(everyone))
    assert (item_tables(run._simulation, 3)[OWN] != 0).any()


@pytest.mark.parametrize("method", ["fedmf", "local", "fedhist"])
def test_one_table_for_all_has_no_owners(data, method):
    simulation: Any = solera.train(method, data, rounds=1, threads=1)._simulation
    assert owners(simulation) == ()
