from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest

from solera.data.interactions import Interactions
from solera.evaluate.audit import audit


def toy() -> Interactions:
    """Two users of four rows over items 0…4.

    a: 0 1 2 0, all times different; b: 1 2 3 4, the last two at the same time.
    """
    users = list("aaaabbbb")
    items = list("01201234")
    return Interactions.from_columns("toy", users, items, np.array([1, 2, 3, 4, 1, 2, 3, 3]))


def test_paper_by_hand() -> None:
    """a's test item 0 is in a's train (0 1); b's test item 3 (tie: the earlier row) is excluded unseen."""
    got = audit(toy(), "paper")
    assert got["leaky"] is True
    assert (got["rows"], got["distinct_pairs"], got["duplicate_rows"]) == (8, 7, 1)
    assert (got["users"], got["items"], got["users_not_evaluated"]) == (2, 5, 0)
    assert got["test_in_train"] == 0.5
    assert got["test_never_negative"] == 0.5
    assert got["latest_time_ties"] == {"users": 1, "share": 0.5}
    said = " ".join(got["verdict"])
    assert "leaky" in said
    assert "50 % of the test items are already among" in said
    assert "1 of the 8 rows" in said


def test_strict_gives_nothing_away() -> None:
    got = audit(toy(), "strict")
    assert got["leaky"] is False
    assert got["test_in_train"] == got["test_never_negative"] == 0
    assert "leaky" not in " ".join(got["verdict"])


def test_popularity_by_hand() -> None:
    """strict: a trains 0, test 2; b trains 1 2, validation 3, test 4. Users per item: 0 1 2 have one each.

    a: item 2 (1) against 3 4 (0), as 0 and 1 are history: rank 1. b: item 4 (0) against 0 (1): rank 2.
    So HR = 1 and MRR = (1 + 1/2)/2 = 3/4.
    """
    got = audit(toy(), "strict")["popularity"]["full"]
    assert got["hr@5"] == 1
    assert got["mrr@5"] == 0.75


def test_no_times_and_users_not_evaluated() -> None:
    data = Interactions.from_columns("toy", list("aaabbb"), list("012001"))
    got = audit(data, "strict")
    assert got["has_time"] is False
    assert got["latest_time_ties"] is None
    assert got["users_not_evaluated"] == 1
    assert any("no times" in sentence for sentence in got["verdict"])


def test_lost_to_filter() -> None:
    """c has one row, of an item nobody else has: a filter at two rows costs one user and one item."""
    data = Interactions.from_columns("toy", [*"aaabbb", "c"], [*"012120", "3"])
    got = audit(data.min_interactions(2), "strict", unfiltered=data)
    assert (got["users_lost_to_filter"], got["items_lost_to_filter"]) == (1, 1)
    assert any(sentence.startswith("The filter left out 1") for sentence in got["verdict"])
    assert audit(data.min_interactions(2), "strict")["users_lost_to_filter"] is None


def test_global_time_counts_what_it_drops() -> None:
    """Times 0…19, cuts at 16 and 18: a's item 9 at 17 is new to everybody, and so is c at 19: two dropped."""
    users = [*"ab" * 8, *"aabc"]
    items = [str(i // 2 + i % 2) for i in range(16)] + [*"8900"]
    got = audit(Interactions.from_columns("toy", users, items, np.arange(20)), "global-time")
    assert got["held_out_dropped"] == 2
    assert got["users_not_evaluated"] == 2
    assert any(sentence.startswith("2 held-out") for sentence in got["verdict"])


@pytest.mark.parametrize("protocol", ["strict", "paper"])
def test_plain_json(protocol: str) -> None:
    got = audit(toy(), protocol)
    assert json.loads(json.dumps(got)) == got


def test_lastfm_repeats_its_answers(dataset: Callable[[str], Interactions]) -> None:
    """Tag assignments taken for interactions: half of the answers are in the question."""
    got = audit(dataset("lastfm-2k"), "paper")
    assert (got["rows"], got["distinct_pairs"]) == (185_650, 70_508)
    assert got["test_in_train"] == pytest.approx(0.51, abs=0.01)
    assert got["test_never_negative"] == pytest.approx(0.49, abs=0.01)
    assert any(sentence.startswith("51 % of the test items") for sentence in got["verdict"])


def test_movielens_leaks_every_test_item(dataset: Callable[[str], Interactions]) -> None:
    data = dataset("ml-100k")
    assert audit(data, "paper")["test_never_negative"] == 1
    assert audit(data, "strict")["test_never_negative"] == 0


def test_filmtrust_is_popularity(dataset: Callable[[str], Interactions]) -> None:
    """Counting alone puts nine of ten held-out items among the first ten of a hundred."""
    got = audit(dataset("filmtrust"), "strict")
    assert got["popularity"]["sampled99"]["hr@10"] == pytest.approx(0.91, abs=0.02)
    assert got["popularity"]["sampled99"]["ndcg@10"] == pytest.approx(0.82, abs=0.02)
    assert any("hardly tell methods apart" in sentence for sentence in got["verdict"])
