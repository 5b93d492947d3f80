"""Metrics beyond accuracy and on warm items, derived by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from solera.data.interactions import IdMap, Interactions, Split
from solera.data.ragged import Ragged
from solera.evaluate import Evaluator
from solera.evaluate.beyond import DIVERSE, K, Lists, best_items, gini, together


def listed(train: list[list[int]], items: list[list[int]], n_items: int) -> Lists:
    shown = np.array(items)
    counts = np.bincount(shown[shown >= 0], minlength=n_items)
    return Lists(Ragged.from_lists(train), n_items, counts, np.arange(len(items)), shown)


def test_by_hand():
    """Items 0 and 1 have the users {0, 1, 2} and {0}, item 2 has {3}, item 3 nobody; four users.

    Two lists: {0, 1} and {0, 3}. Coverage: 3 of 4 items. Sorted counts 0, 1, 1, 2 of sum 4: the Gini
    coefficient is (−3·0 − 1·1 + 1·1 + 3·2) / (4 · 4). Shares ¾, ¼, ¾ and 0: their mean is 1.75 / 4. Bits:
    log2(4/3), 2, log2(4/3) and, as if one user had it, 2. Cosines: 1/√3 of 0 and 1; none with item 3.
    """
    found = listed([[0, 1], [0], [0, 0], [2]], [[0, 1], [0, 3]], 4).metrics
    assert found == {
        "coverage@10": pytest.approx(3 / 4),
        "gini@10": pytest.approx(6 / 16),
        "popularity@10": pytest.approx(1.75 / 4),
        "novelty@10": pytest.approx((2 * math.log2(4 / 3) + 4) / 4),
        "diversity@10": pytest.approx(1 - 0.5 / math.sqrt(3)),
    }


def test_gini_of_extremes():
    assert gini(np.array([5, 5, 5, 5])) == 0
    assert gini(np.array([0, 0, 0, 8])) == pytest.approx(3 / 4)
    assert gini(np.zeros(4, np.int64)) == 0


def test_common_users_in_blocks(monkeypatch):
    draw = np.random.default_rng(1)
    has = draw.random((50, 9)) < 0.3
    train = Ragged.from_lists([np.flatnonzero(row).tolist() for row in has])
    first, second = np.triu_indices(9, 1)
    expected = (has.T.astype(int) @ has)[first, second]
    assert together(train, first, second).tolist() == expected.tolist()
    monkeypatch.setattr("solera.evaluate.beyond._USERS_AT_ONCE", 7)
    assert together(train, first, second).tolist() == expected.tolist()


def test_the_best_items_are_not_in_the_history():
    scores = torch.arange(12.0).expand(2, -1)
    known = Ragged.from_lists([[11, 9], list(range(1, 12))])
    assert best_items(scores, known).tolist() == [[10, 8, 7, 6, 5, 4, 3, 2, 1, 0], [0] + [-1] * 9]
    assert scores[0, 11] == 11, "scores do not change"
    assert best_items(torch.tensor([[1.0, 3.0, 2.0]]), Ragged.from_lists([[]])).tolist() == [
        [1, 2, 0] + [-1] * (K - 3)
    ]


def made(train: list[list[int]], validation: list[list[int]], test: list[list[int]], n_items: int) -> Split:
    parts = [Ragged.from_lists(each) for each in (train, validation, test)]
    whole = parts[0].concat(parts[1]).concat(parts[2])
    users, items = (IdMap(np.arange(n).astype(str)) for n in (len(train), n_items))
    data = Interactions("toy", whole.rows, whole.values, None, users, items)
    trained, validated, tested = parts
    return Split(data, "toy", False, trained, validated, tested, trained.sorted_unique())


def test_cold_items_by_hand():
    """Item 5 of user 1 has no training row; nor has item 4 of user 2, whose other test item is warm.

    Scores fall from item 0 on. User 0 has met 0, 1, 2 and looks for 3: place 1. User 2 has met 0, 1, 2 and
    looks for 3 and 4, places 1 and 2. User 1 has met 3, 0, 1 and looks for 5, behind 2 and 4: place 3.
    """
    split = made([[0, 1], [3, 0], [0, 1]], [[2], [1], [2]], [[3], [5], [3, 4]], 6)
    got = Evaluator(split, 0).test(lambda users: -torch.arange(6.0).expand(len(users), -1))
    assert got.full_ranking.places.tolist() == [1, 3, 1, 2]
    assert got.cold == pytest.approx(2 / 4)
    assert got.warm_ranking.users.tolist() == [0, 2]
    assert got.warm_ranking.places.tolist() == [1, 1]
    assert got.warm["ndcg@10"] == got.warm["recall@10"] == 1
    assert got.full["ndcg@10"] == pytest.approx((1 + 1 / 2 + 1) / 3)
    validated = Evaluator(split, 0).validation(lambda users: torch.zeros(len(users), 6))
    assert (validated.warm, validated.cold, validated.lists) == (None, None, None)


def test_all_cold():
    split = made([[0, 1], [0, 1]], [[2], [3]], [[4], [5]], 6)
    got = Evaluator(split, 0).test(lambda users: torch.zeros(len(users), 6))
    assert (got.warm, got.cold) == (None, 1.0)


def test_streamed_as_all_at_once():
    """With any chunks and threads, lists are those of the whole score table."""
    draw = np.random.default_rng(2)
    rows = [draw.permutation(40)[:8].tolist() for _ in range(60)]
    split = made([r[:6] for r in rows], [r[6:7] for r in rows], [r[7:] for r in rows], 40)
    table = torch.from_numpy(draw.random((60, 40)))
    found = [
        Evaluator(split, 0, chunk=chunk, threads=threads).test(lambda users: table[users]).lists
        for chunk, threads in ((40 * 60, 1), (40 * 7, 1), (40, 2))
    ]
    hidden = table.clone()
    for user, row in enumerate(rows):
        hidden[user, row[:7]] = -1
    expected = torch.topk(hidden, K).indices
    for lists in found:
        assert lists.items.tolist() == expected.tolist()
        assert lists.counts.tolist() == torch.bincount(expected.flatten(), minlength=40).tolist()
        assert lists.metrics == found[0].metrics


def test_diversity_is_of_a_sample(monkeypatch):
    monkeypatch.setattr("solera.evaluate.ranking.DIVERSE", 5)
    rows = [[u % 20, (u + 1) % 20, (u + 2) % 20] for u in range(40)]
    split = made([r[:1] for r in rows], [r[1:2] for r in rows], [r[2:] for r in rows], 20)
    got = Evaluator(split, 0).test(lambda users: torch.zeros(len(users), 20))
    assert len(got.lists.users) == 5 < DIVERSE
    assert got.lists.counts.sum() == 40 * K
