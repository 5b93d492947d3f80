"""Sentences about a board say no more than its records prove."""

from __future__ import annotations

from benchmark import made

from solera.study.compare import boards, compare
from solera.study.tables import comparison_tables

USERS = 40  # with NDCG@10 of 1 (rank 1) or 0 (rank 11)


def ranks(hits: int) -> list[float]:
    return [1.0] * hits + [11.0] * (USERS - hits)


RECORDS = [
    made("good", ranks(36)),
    made("poor", ranks(0)),
    made("popularity", ranks(12), kind="baseline"),
    made("mf", list(reversed(ranks(30))), kind="baseline"),
    made("ease", ranks(40), kind="baseline"),  # reads histories: an old record has the longer alone
]


def test_every_pair_once_and_verdicts():
    (board,) = boards(RECORDS)
    found = {(each.test, each.ours.label, each.theirs.label): each.verdict for each in compare(board)}
    assert found == {
        ("test_train", "good", "mf"): "level with",
        ("test_train", "good", "popularity"): "above",
        ("test_train", "poor", "mf"): "below",
        ("test_train", "poor", "popularity"): "below",
        ("test_train", "mf", "popularity"): "above",
        ("test", "ease", "popularity"): "above",
    }, "only models with the same history are compared"


def test_table_states_the_number_of_comparisons():
    (board,) = boards(RECORDS)
    train, validation = comparison_tables(board)
    assert train.head == ("method", "mf", "popularity")
    assert [row[0] for row in train.rows] == ["good", "mf", "poor"]
    assert "all 6 comparisons" in train.note
    assert [row[0] for row in validation.rows] == ["ease"]
    (leaky,) = boards([made("a", ranks(1), protocol="paper"), made("mf", ranks(1), protocol="paper")])
    assert list(comparison_tables(leaky)) == []
