"""Runs of FedSASRec with everything that may happen to uploads."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

import solera
from made_ratings import random_histories

OPTIONS: dict[str, Any] = {
    "embedding_size": 8,
    "layers": 1,
    "max_length": 10,
    "warmup": 2,
    "clients_per_round": 8,
}


@pytest.fixture(scope="module")
def data():
    return random_histories(users=30, items=25)


@pytest.fixture(scope="module")
def plain(data):
    return solera.train("fedsasrec", data, rounds=3, precision="double", **OPTIONS)


def test_rounds_that_are_not_validated_change_nothing(data, plain):
    run = solera.train("fedsasrec", data, rounds=3, evaluate_every=3, precision="double", **OPTIONS)
    assert run.history["loss"].to_list() == plain.history["loss"].to_list()


@pytest.mark.parametrize("how", [{"secure_aggregation": True}, {"upload": "int8"}, {"download": "int8"}])
def test_masks_and_codings_change_little(data, plain, how):
    run = solera.train("fedsasrec", data, rounds=3, precision="double", **OPTIONS, **how)
    assert run.history["loss"].to_list() == pytest.approx(plain.history["loss"].to_list(), rel=0.02)


def test_differential_privacy(data):
    run = solera.train(
        "fedsasrec", data, rounds=3, dp="epsilon=8,delta=1e-3,clip=1", **OPTIONS | {"clients_per_round": 0.3}
    )
    assert run.result.privacy["epsilon"] <= 8
    assert run.result.selected_round == 3


def test_a_model_is_learned():
    """Everybody goes round the same circle of items, so the next item is known."""
    rows = [(f"u{user}", f"i{(user + time) % 20}", 1, time) for user in range(40) for time in range(9)]
    circle = solera.load(pl.DataFrame(rows, schema=["user", "item", "rating", "time"], orient="row"))
    options = OPTIONS | {"learning_rate": 0.02, "dropout": 0.0, "clients_per_round": 1.0}
    run = solera.train("fedsasrec", circle, rounds=60, evaluate_every=60, **options)
    assert run.result.test.full["hr@10"] == 1.0
    assert run.result.test.full["ndcg@10"] > 0.9
