"""Memories that fade by days instead of positions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from solera.core.errors import ConfigError, DataError
from solera.data.interactions import Interactions, history, when_asked
from solera.data.ragged import Ragged, gaps
from solera.evaluate import split
from solera.math.fading import Timing
from solera.math.next_items import memory_products, next_products
from solera.methods import find

DECAYS = (0.0, 0.6, 1.0)


def test_equal_gaps_are_positions():
    """With one item every D days, a^(days / D) is a^age."""
    memories, following = Timing(decay_days=4.0).products(np.linspace(100, 124, 7), DECAYS, 3, 0.5)
    np.testing.assert_allclose(memories, memory_products(7, DECAYS))
    np.testing.assert_allclose(following, next_products(7, DECAYS, 3, 0.5))


def test_until_the_next_item_by_hand():
    """Items on days 0, 1 and 3, a = ½, D = 1: s_0 = ½ e_0 on day 1; s_1 = ⅛ e_0 + ¼ e_1 on day 3."""
    timing, days = Timing(1.0, until_next=True), np.array([0.0, 1.0, 3.0])
    memories, following = timing.products(days, (0.5,), 1, 0.0)
    expected = np.array([[1 / 4 + 1 / 64, 1 / 32, 0], [1 / 32, 1 / 16, 0], [0, 0, 0]])
    np.testing.assert_allclose(memories[0, :, 0], expected)
    np.testing.assert_allclose(following[0, :, 0], np.array([[0, 1 / 2, 1 / 8], [0, 0, 1 / 4], [0, 0, 0]]))


def test_a_least_weight():
    """Of the item 3 days ago ⅛ would be left: it keeps 0.2."""
    found = Timing(1.0, least_weight=0.2).weights(np.array([0.0, 1.0, 3.0]), (0.5,))
    np.testing.assert_allclose(found, [[1, 0.5, 0.2]])


def test_gaps_until_the_newest_item_or_the_request():
    known = Ragged(np.array([0, 2, 2, 3]), np.array([5, 6, 7]), np.array([1.0, 4.0, 9.0]))
    np.testing.assert_array_equal(gaps(known), [3, 0, 0])
    told = replace(known, asked=np.array([6.0, 0.0, 9.5]))
    np.testing.assert_array_equal(gaps(told), [5, 2, 0.5])
    np.testing.assert_array_equal(gaps(told.take(np.array([2, 0]))), [0.5, 5, 2])


def test_days_stay_with_their_items():
    one = Ragged(np.array([0, 2, 3]), np.array([1, 2, 3]), np.array([10.0, 20.0, 30.0]))
    other = Ragged(np.array([0, 0, 1]), np.array([4]), np.array([40.0]))
    both = one.concat(other)
    assert both.values.tolist() == [1, 2, 3, 4]
    assert both.days_of(1).tolist() == [30, 40]
    assert both.take(np.array([1])).days_of(0).tolist() == [30, 40]
    grouped = Ragged.from_pairs(np.array([1, 0, 1]), np.array([7, 8, 9]), 2, np.array([1.0, 2.0, 3.0]))
    assert grouped.days_of(1).tolist() == [1, 3]


@pytest.mark.parametrize(("unit", "day"), [(1, 86_400), (1000, 86_400_000)])
def test_seconds_and_milliseconds_are_days(unit, day):
    times = 900_000_000 * unit + day * np.arange(4)
    data = Interactions.from_columns("dated", ["u"] * 4, ["0", "1", "2", "3"], times)
    assert data.days is not None
    np.testing.assert_allclose(np.diff(data.days), 1)
    asked = when_asked(split(data, "strict"))
    np.testing.assert_allclose(gaps(asked), [3, 2, 1])
    assert history(split(data, "strict"), "test").asked is None  # never by default


def test_ranks_are_no_days():
    ranks = Interactions.from_columns("ranked", ["u"] * 4, ["0", "1", "2", "3"], np.arange(4))
    assert ranks.days is None
    dated = Interactions.from_columns("dated", ["u"] * 2, ["0", "1"], np.array([9e8, 9e8]).astype(int))
    assert replace(dated, one_clock=False).days is None
    with pytest.raises(DataError, match="decay_days needs the dates"):
        gaps(ranks.timed_by_user)


def test_options_of_time_need_decay_days():
    with pytest.raises(ConfigError, match="need decay_days"):
        find("fedslist", {"until_next": True})
