"""Every attack on a case where it must find everything, and on one where there is nothing to find."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import planted_uploads as planted
from solera.core.upload import Upload
from solera_research.inference.attacks import ATTACKS, direction
from solera_research.inference.figures import Figures, success
from solera_research.inference.learned import Classifier, Learned, features
from solera_research.inference.row_changes import SeenRows, rows_seen, total


def result(attack, plant) -> Figures:
    each = []
    for rows, mine, draw in planted.clients():
        sight = plant(rows, mine, draw)
        each.append(success(sight.spread(attack(sight), planted.ITEMS), planted.truth(rows, mine)))
    return Figures.of(each)


@pytest.mark.parametrize(("attack", "plant"), [("sign", planted.along_a_vector), ("norm", planted.longer)])
def test_what_is_planted_is_found(attack, plant):
    found = result(ATTACKS[attack], plant)
    assert (found.auc, found.precision, found.auc_touched) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("attack", ["sign", "norm"])
def test_nothing_is_found_in_noise(attack):
    bound = planted.four_errors(planted.CLIENTS, planted.POSITIVES, planted.NEGATIVES)
    assert bound < 0.05
    assert result(ATTACKS[attack], planted.noise).auc_touched == pytest.approx(0.5, abs=bound)


def test_touched_knows_the_rows_alone():
    found = result(ATTACKS["touched"], planted.along_a_vector)
    negatives = planted.ITEMS - planted.POSITIVES
    untouched = planted.ITEMS - planted.POSITIVES - planted.NEGATIVES
    assert found.auc == pytest.approx((untouched + planted.NEGATIVES / 2) / negatives)
    assert found.precision == pytest.approx(planted.POSITIVES / (planted.POSITIVES + planted.NEGATIVES))
    assert found.auc_touched == 0.5


def test_the_direction_does_not_depend_on_the_sign_of_the_user_vector():
    rows, mine, draw = next(planted.clients())
    sight = planted.along_a_vector(rows, mine, draw)
    other = SeenRows(rows, -sight.changes)
    assert (sight.changes @ direction(sight) > 0).tolist() == mine.tolist()
    # the same rows move the other way: now the many are where the few were
    assert (other.changes @ direction(other) > 0).tolist() == mine.tolist()


def shadow(plant) -> Figures:
    """Learned on one half of the clients, tried on the other."""
    sent = np.random.default_rng(1).standard_normal((planted.ITEMS, planted.WIDTH))
    seen = [(plant(rows, mine, draw), rows, mine) for rows, mine, draw in planted.clients(5)]
    known, attacked = seen[: len(seen) // 2], seen[len(seen) // 2 :]
    popularity = np.zeros(planted.ITEMS)
    inputs = np.concatenate([features(sight, sent, popularity) for sight, _, _ in known])
    network = Classifier(
        inputs, np.concatenate([mine.astype(float) for _, _, mine in known]), np.random.default_rng(2)
    )
    return Figures.of(
        [
            success(
                sight.spread(network(features(sight, sent, popularity)), planted.ITEMS),
                planted.truth(rows, mine),
            )
            for sight, rows, mine in attacked
        ]
    )


@pytest.mark.parametrize("plant", [planted.along_a_vector, planted.longer])
@pytest.mark.slow
def test_a_shadow_learns_what_gives_away_by_itself(plant):
    found = shadow(plant)
    assert (found.auc, found.precision) == (1.0, 1.0)


@pytest.mark.slow
def test_a_shadow_learns_nothing_from_noise():
    bound = planted.four_errors(planted.CLIENTS // 2, planted.POSITIVES, planted.NEGATIVES)
    assert shadow(planted.noise).auc_touched == pytest.approx(0.5, abs=bound)


# What is seen


def test_an_upload_is_seen_client_by_client():
    upload = Upload(
        torch.tensor([1, 4, 0]),
        torch.tensor([2, 1]),
        {"a": torch.tensor([[1.0], [2.0], [3.0]]), "b": torch.tensor([[5.0], [6.0], [7.0]])},
    )
    first, second = rows_seen(upload, ("a", "b"))
    assert first.rows.tolist() == [1, 4]
    assert first.changes.tolist() == [[1, 5], [2, 6]]
    assert second.changes.tolist() == [[3, 7]]
    assert second.spread(np.array([9.0]), 3).tolist() == [9, -np.inf, -np.inf]


def test_one_number_per_item_is_a_row_like_any_other():
    changes = {"items": torch.tensor([[1.0, 2.0], [3.0, 4.0]]), "bias": torch.tensor([5.0, 6.0])}
    (seen,) = rows_seen(Upload(torch.tensor([1, 4]), torch.tensor([2]), changes), ("bias", "items"))
    assert seen.changes.tolist() == [[5, 1, 2], [6, 3, 4]]


def test_a_sum_hides_who_and_shows_all_rows():
    one = SeenRows(np.array([0, 2]), np.array([[1.0], [4.0]]))
    two = SeenRows(np.array([1, 2]), np.array([[3.0], [-2.0]]))
    summed = total([one, two], np.array([1.0, 2.0]), 4)
    assert summed.rows.tolist() == [0, 1, 2, 3]
    assert summed.changes.tolist() == [[1], [6], [0], [0]]  # 4 − 2 · 2 = 0
    assert summed.moved.tolist() == [True, True, False, False]
    assert summed.without_unmoved().rows.tolist() == [0, 1]
    assert ATTACKS["touched"](summed).tolist() == [1, 1, 0, 0]
    assert total([one], np.array([7.0]), 4) is one


@pytest.mark.parametrize(("unmoved_is_no", "rows"), [(True, [1, 2]), (False, [0, 1, 2])])
def test_a_row_that_did_not_move_may_be_a_saturated_interaction(unmoved_is_no, rows):
    sight = SeenRows(np.arange(3), np.array([[0.0], [1.0], [-1.0]]))
    learned = Learned(np.zeros(3), unmoved_is_no=unmoved_is_no)
    assert learned.candidates(sight).rows.tolist() == rows
