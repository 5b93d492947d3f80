from __future__ import annotations

from math import log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solera.core.errors import ConfigError
from solera.evaluate.metrics import (
    CUTOFFS,
    mean,
    per_user,
    per_user_sum,
    places,
    register_metric,
    with_always,
)


def of(*ranks: float) -> dict[str, float]:
    """The metrics of one user whose relevant items have these ranks among the irrelevant ones."""
    counts = np.array([len(ranks)])
    return mean(per_user(places(np.array(ranks), counts), counts))


def test_one_item_in_third_place() -> None:
    """Place 3: inside every cutoff; NDCG = (1/log2 4) / (1/log2 2) = 1/2; MRR = 1/3."""
    got = of(3)
    for k in CUTOFFS:
        assert got[f"hr@{k}"] == got[f"recall@{k}"] == 1
        assert got[f"ndcg@{k}"] == pytest.approx(1 / 2)
        assert got[f"mrr@{k}"] == pytest.approx(1 / 3)


def test_cutoffs_cut() -> None:
    """Place 7: nothing at 5; at 10 NDCG = 1/log2 8 = 1/3 and MRR = 1/7. Place 10 is in, 11 is out."""
    got = of(7)
    assert got["hr@5"] == got["ndcg@5"] == got["mrr@5"] == got["recall@5"] == 0
    assert got["ndcg@10"] == pytest.approx(1 / 3)
    assert got["mrr@10"] == pytest.approx(1 / 7)
    assert of(10)["hr@10"] == 1
    assert of(11)["hr@10"] == 0


def test_fractional_place() -> None:
    """Place 5.5 (tied with one item around the cutoff): out at 5; at 10 MRR = 2/11, NDCG = 1/log2 6.5."""
    got = of(5.5)
    assert got["hr@5"] == 0
    assert got["mrr@10"] == pytest.approx(2 / 11)
    assert got["ndcg@10"] == pytest.approx(1 / log2(6.5))


def test_places_of_several_relevant_items() -> None:
    """Ranks among the irrelevant 6, 1, 2 → sorted 1, 2, 6 → each better relevant one takes a place: 1, 3, 8.

    The second user's ranks 1, 1 become places 1, 2: both before every irrelevant item.
    """
    got = places(np.array([6.0, 1, 2, 1, 1]), np.array([3, 2]))
    assert got.tolist() == [1, 3, 8, 1, 2]


def test_several_relevant_items() -> None:
    """Places 1, 3, 8 of n = 3.

    @5: two of three found, recall 2/3; DCG = 1/log2 2 + 1/log2 4 = 3/2; ideal = 1 + 1/log2 3 + 1/2.
    @10: all found; DCG = 3/2 + 1/log2 9. HR and MRR look at the best place only: 1.
    """
    got = of(6, 1, 2)
    ideal = 1.5 + 1 / log2(3)
    assert got["recall@5"] == pytest.approx(2 / 3)
    assert got["ndcg@5"] == pytest.approx(1.5 / ideal)
    assert got["recall@10"] == 1
    assert got["ndcg@10"] == pytest.approx((1.5 + 1 / log2(9)) / ideal)
    assert got["hr@5"] == got["mrr@5"] == 1


def test_ideal_stops_at_the_cutoff() -> None:
    """Six relevant items in the first six places: recall@5 = 5/6, and NDCG is 1 at every K."""
    got = of(1, 1, 1, 1, 1, 1)
    assert [got[f"ndcg@{k}"] for k in CUTOFFS] == pytest.approx([1] * len(CUTOFFS))
    assert got["recall@5"] == pytest.approx(5 / 6)
    assert got["recall@10"] == 1


def test_mean_is_over_users_not_items() -> None:
    """User 1: one item, place 1, recall 1. User 2: two items, places 11 and 12, recall@10 0. Mean 1/2."""
    counts = np.array([1, 2])
    each = per_user(places(np.array([1.0, 11, 11]), counts), counts)
    assert each["recall@10"].tolist() == [1, 0]
    assert mean(each)["recall@10"] == 0.5


ranks = st.lists(st.integers(2, 400).map(lambda twice: twice / 2), min_size=1, max_size=60)


@given(ranks)
def test_bounds_and_monotone_in_k(ranks: list[float]) -> None:
    got = of(*ranks)
    assert all(0 <= value <= 1 + 1e-12 for value in got.values())
    for name in ("hr", "mrr", "recall"):  # NDCG may fall: its ideal grows with K
        assert [got[f"{name}@{k}"] for k in CUTOFFS] == sorted(got[f"{name}@{k}"] for k in CUTOFFS)


@given(st.lists(ranks, min_size=1, max_size=5))
def test_batch_equals_single_users(users: list[list[float]]) -> None:
    counts = np.array([len(each) for each in users])
    batch = per_user(places(np.concatenate(users), counts), counts)
    for u, each in enumerate(users):
        assert {name: values[u] for name, values in batch.items()} == pytest.approx(of(*each))


def test_other_cutoffs_by_hand():
    """Two users at places 3 and 40: HR@3 and HR@100 count one and both; NDCG@3 is half of 1/log2(4)."""
    counts = np.array([1, 1])
    got = mean(per_user(np.array([3.0, 40.0]), counts, (3, 100)))
    assert got["hr@3"] == 0.5
    assert got["hr@100"] == 1
    assert got["ndcg@3"] == pytest.approx(0.25)
    assert "hr@10" not in got


def test_ten_is_always_among_the_cutoffs():
    assert with_always((20, 5)) == (5, 10, 20)
    with pytest.raises(ConfigError, match="0 is not a cutoff"):
        with_always((0, 5))


class Precision:
    """|{j : p_j ≤ k}| / k."""

    name = "precision"

    def measure(self, places, counts, k):
        return per_user_sum((places <= k).astype(float), counts) / k


@pytest.mark.usefixtures("nothing_of_ones_own")
def test_a_metric_of_ones_own_is_computed_beside_the_others() -> None:
    """Places 1, 3, 8 and 7: of the first five items two and none are relevant, of the first ten 3 and 1."""
    register_metric(Precision())
    got = per_user(np.array([1.0, 3.0, 8.0, 7.0]), np.array([3, 1]), (5, 10))
    assert got["precision@5"].tolist() == [0.4, 0.0]
    assert got["precision@10"].tolist() == [0.3, 0.1]
    assert got["hr@5"].tolist() == [1, 0]
    assert per_user(np.zeros(0), np.zeros(0, int), (5,))["precision@5"].tolist() == []


class Named(Precision):
    name = "ndcg"


class NotFinite(Precision):
    def measure(self, places, counts, k):
        return np.full(len(counts), np.nan)


class OneForAll(Precision):
    def measure(self, places, counts, k):
        return np.zeros(1)


@pytest.mark.usefixtures("nothing_of_ones_own")
def test_a_metric_that_cannot_be_used() -> None:
    with pytest.raises(ConfigError, match="one of Solera's own metrics"):
        register_metric(Named())
    for wrong in (NotFinite(), OneForAll()):
        register_metric(wrong)
        with pytest.raises(ConfigError, match="precision@5 did not return one finite number for each of 2"):
            per_user(np.array([1.0, 2.0]), np.array([1, 1]))
