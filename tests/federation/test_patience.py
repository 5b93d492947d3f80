"""How long the server waits for the last nodes."""

from __future__ import annotations

import pytest

from solera.federation.server.loop import Patience


@pytest.mark.parametrize(
    ("asked", "threshold", "quorum"),
    [(3, 0, 2), (2, 0, 1), (1, 0, 1), (50, 0, 33), (50, 40, 40), (30, 40, 30)],
)
def test_how_many_are_enough(asked, threshold, quorum):
    assert Patience(10).quorum(asked, threshold) == quorum


def test_a_node_that_hangs_costs_a_fixed_time_in_all_exchanges_of_a_round():
    patience = Patience(10)
    assert patience.until("share", [1], enough_at=4.0) == 14.0
    patience.spend(7.0)
    assert patience.until("mask", [2], enough_at=4.0) == 7.0
    patience.spend(5.0)
    assert patience.until("confirm", [3], enough_at=4.0) == 4.0
    patience.begin_round()
    assert patience.until("share", [1], enough_at=4.0) == 14.0


def test_a_node_that_hangs_while_it_enrols_leaves_time_for_those_that_train():
    patience = Patience(10)
    assert patience.until("enrol", [1], enough_at=4.0) == 9.0
    patience.spend(5.0)
    assert patience.until("train", [2], enough_at=4.0) == 9.0


def test_a_node_that_is_known_to_be_slow_is_waited_for():
    patience = Patience(10)
    patience.answered("train", 1, 60.0)
    assert patience.until("train", [1, 2], enough_at=5.0) == 90.0
    assert patience.until("mask", [1, 2], enough_at=5.0) == 15.0  # another kind of work
    patience.answered("train", 1, 2.0)  # it has become faster
    assert patience.until("train", [1, 2], enough_at=5.0) == 15.0
