"""Rankings with a known answer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solera_research.inference.figures import Figures, Success, auc, precision, success


def test_by_hand():
    scores, truth = np.array([3.0, 2.0, 1.0, 0.0]), np.array([True, False, True, False])
    assert auc(scores, truth) == 3 / 4  # of four pairs, only (1, 2) stands the wrong way round
    assert precision(scores, truth) == 1 / 2
    assert auc(-scores, truth) == 1 / 4


def test_ties_count_half_and_are_cut_on_average():
    truth = np.array([True, False, False, False])
    assert auc(np.zeros(4), truth) == 0.5
    assert precision(np.zeros(4), truth) == 1 / 4
    assert auc(np.array([1.0, 1.0, 0.0, -np.inf]), truth) == pytest.approx(2.5 / 3)
    assert precision(np.array([1.0, 1.0, 0.0, -np.inf]), truth) == 1 / 2


def test_where_there_is_nothing_to_tell_apart():
    assert auc(np.arange(3.0), np.ones(3, bool)) is None
    assert auc(np.arange(3.0), np.zeros(3, bool)) is None


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=30))
def test_auc_is_the_share_of_pairs(rows):
    scores, truth = np.array([float(s) for s, _ in rows]), np.array([t for _, t in rows])
    pairs = [(p > n) + (p == n) / 2 for p in scores[truth] for n in scores[~truth]]
    assert auc(scores, truth) == (pytest.approx(np.mean(pairs)) if pairs else None)


def test_rows_that_did_not_change_are_below_all_and_not_among_the_touched():
    evidence = np.array([0.0, 1.0, -np.inf, -np.inf])
    found = success(evidence, np.array([True, False, False, False]))
    assert found == Success(auc=2 / 3, precision=0.0, auc_touched=0.0, chance=0.25)


def test_means_over_clients():
    each = [Success(1.0, 1.0, None, 0.1), Success(0.5, 0.0, 0.5, 0.3)]
    found = Figures.of(each)
    assert (found.clients, found.auc, found.precision, found.auc_touched) == (2, 0.75, 0.5, 0.5)
    assert found.auc_error == pytest.approx(0.25)  # sd 0.5/√2, over √2
    assert found.chance == pytest.approx(0.2)
