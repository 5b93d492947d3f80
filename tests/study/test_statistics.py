"""Means, intervals and quarters, against numbers derived by hand or known exactly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solera.evaluate import Evaluation, Ranking
from solera.study.statistics import (
    Interval,
    Paired,
    Spread,
    by_activity,
    by_ratings,
    holm,
    interval,
    paired,
    spread,
)

VALUES = st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=30)


def test_spread_by_hand():
    assert spread([1.0, 2.0, 6.0]) == Spread(3.0, 7.0**0.5)  # (4 + 1 + 9) / 2
    assert spread([0.25]) == Spread(0.25, None)


def test_interval_of_two_users_by_hand():
    """Resampled means are 0, ½ and 1 with probabilities ¼, ½ and ¼: both tails hold more than 2.5 %."""
    assert interval(np.array([0.0, 1.0])) == Interval(0.5, 0.0, 1.0)


@pytest.mark.parametrize(("users", "hits"), [(100, 50), (400, 40)])
def test_interval_of_hits_is_binomial(users, hits):
    from scipy.stats import binom

    values = np.zeros(users)
    values[:hits] = 1
    found = interval(values)
    share = hits / users
    assert found.mean == share
    exact = binom.ppf([0.025, 0.975], users, share) / users
    # The percentile of 2,000 draws is off by about 1/√(2000·0.025) of a tail's mass: a step or two.
    assert found.low == pytest.approx(exact[0], abs=2.1 / users)
    assert found.high == pytest.approx(exact[1], abs=2.1 / users)
    assert found.low < share < found.high


def test_paired_by_hand():
    """Differences 0, 1 and 2: mean 1, standard deviation 1, error 1/√3."""
    found = paired(np.array([1.0, 2.0, 3.0]), np.array([1.0, 1.0, 1.0]))
    assert (found.mean, found.error) == pytest.approx((1.0, 3**-0.5))
    assert found.interval(0.05).low == pytest.approx(1 - 1.959964 / 3**0.5)
    assert Paired(1.959964, 1.0).p == pytest.approx(0.05)
    assert (Paired(0.0, 0.0).p, Paired(1.0, 0.0).p) == (1.0, 0.0)
    assert paired(np.array([1.0]), np.array([0.0])).p == 1.0, "one user proves nothing"


def test_normal_intervals_agree_with_the_bootstrap():
    values = np.random.default_rng(0).choice([0.0, 0.0, 0.3, -0.2, 1.0], 900)
    drawn, normal = interval(values), paired(values, np.zeros(900)).interval(0.05)
    assert drawn.low == pytest.approx(normal.low, abs=0.1 * (normal.high - normal.low))
    assert drawn.high == pytest.approx(normal.high, abs=0.1 * (normal.high - normal.low))


def test_holm_by_hand():
    """Bounds of three are 5 %/3, 5 %/2 and 5 %; the second fails, so the third is not tried at 5 %.

    Alone, 1.97 errors are significant at 5 % (1.96); of three, 2.2 are not even at 2.5 % (2.24).
    """
    strong, middle, weak = Paired(4.0, 1.0), Paired(-2.2, 1.0), Paired(1.97, 1.0)
    first, second, third = holm([weak, strong, middle])
    assert second.low == pytest.approx(4 - 2.39398, abs=1e-5)  # 5 %/3
    assert (third.low, third.high) == pytest.approx((-2.2 - 2.241403, -2.2 + 2.241403), abs=1e-5)  # 5 %/2
    assert (first.low, first.high) == pytest.approx((1.97 - 2.241403, 1.97 + 2.241403), abs=1e-5)
    assert holm([weak])[0].low > 0
    assert holm([]) == []


@given(st.lists(st.floats(-6, 6), max_size=12))
def test_holm_is_between_bonferroni_and_no_correction(means):
    found = [Paired(mean, 1.0) for mean in means]
    for each, corrected in zip(found, holm(found), strict=True):
        strict, loose = each.interval(0.05 / len(found)), each.interval(0.05)
        assert strict.low <= corrected.low + 1e-12
        assert corrected.low <= loose.low + 1e-12


def test_interval_narrows_with_the_root_of_the_users():
    wide, narrow = (interval(np.tile([0.0, 1.0], users)) for users in (50, 800))
    assert (wide.high - wide.low) / (narrow.high - narrow.low) == pytest.approx(4, rel=0.1)


@settings(max_examples=20)
@given(VALUES, st.randoms())
def test_shuffling_users_changes_nothing(values, random):
    shuffled = random.sample(values, len(values))
    assert interval(np.array(shuffled), 200) == interval(np.array(values), 200)


@settings(max_examples=20)
@given(VALUES)
def test_identical_rankings_do_not_differ(values):
    ours = np.array(values)
    assert interval(ours - ours.copy(), 200) == Interval(0.0, 0.0, 0.0)


def test_paired_differences_ignore_what_users_have_in_common():
    """A tenth better for everybody is certain, however much users differ among themselves."""
    theirs = np.random.default_rng(1).random(50)
    found = interval((theirs + 0.125) - theirs)
    assert found == pytest.approx(Interval(0.125, 0.125, 0.125))
    alone = interval(theirs + 0.125)
    assert alone.high - alone.low > 0.05


def evaluation(places: list[float]) -> Evaluation:
    users, ones = np.arange(len(places)), np.ones(len(places), dtype=np.int64)
    full = Ranking(users, ones, np.array(places))
    return Evaluation(full, Ranking(users, ones, np.ones(len(places))))


def test_quarters_by_hand():
    sizes = np.array([7, 1, 2, 6, 3, 5, 4, 1])
    places = [1.0, 3.0, 11.0, 11.0, 1.0, 1.0, 1.0, 11.0]
    groups = by_activity(sizes, evaluation(places))
    assert [(g.least, g.most, g.users) for g in groups] == [(1, 1, 2), (2, 3, 2), (4, 5, 2), (6, 7, 2)]
    assert [g.full["hr@10"] for g in groups] == [0.5, 0.5, 1.0, 0.5]
    assert groups[0].full["ndcg@10"] == pytest.approx(0.25)  # 1/log2(1 + 3) = ½ and 0
    assert [g.sampled99 for g in groups] == [{"hr@10": 1.0, "ndcg@10": 1.0}] * 4


def test_users_of_equal_numbers_stay_together():
    groups = by_activity(np.array([3, 9, 3, 3]), evaluation([1.0, 20.0, 1.0, 1.0]))
    assert [(g.least, g.most, g.users) for g in groups] == [(3, 3, 3), (9, 9, 1)]
    assert [g.full["hr@10"] for g in groups] == [1.0, 0.0]


def test_groups_by_ratings_by_hand():
    """Bounds at 5, 20, 30, 50, 100 and 200; a range without users is left out."""
    sizes = np.array([20, 29, 30, 19, 5, 300])
    groups = by_ratings(sizes, evaluation([1.0, 11.0, 11.0, 3.0, 11.0, 1.0]))
    assert [(g.least, g.most, g.users) for g in groups] == [
        (5, 19, 2),
        (20, 29, 2),
        (30, 49, 1),
        (200, 300, 1),
    ]
    assert [g.full["hr@10"] for g in groups] == [0.5, 0.5, 0.0, 1.0]
    assert groups[0].full["ndcg@10"] == pytest.approx(0.25)  # 1/log2(1 + 3) = ½ and 0
