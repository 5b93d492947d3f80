"""Ranks from slices of the items are those from whole rows of scores."""

from __future__ import annotations

from functools import partial
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from solera.core.errors import DivergedError
from solera.core.item_slices import ItemSlice, ItemSlices
from solera.data.interactions import IdMap, Interactions
from solera.data.ragged import Ragged
from solera.data.split import Split
from solera.evaluate import Evaluator, streaming

N_USERS, N_ITEMS = 7, 12


class Sliced(ItemSlices):
    """A table of scores, a few columns at a time."""

    def __init__(self, scores: torch.Tensor, rows: int) -> None:
        self.table, self.rows = scores, rows
        self.asked = 0

    def largest(self, number):
        return number + 1  # some other process has more users

    def serve(self, users):
        def slices():
            for begin in range(0, N_ITEMS, self.rows):
                items = range(begin, min(begin + self.rows, N_ITEMS))
                yield ItemSlice(items, partial(self._scores, items))

        return slices

    def _scores(self, items, users):
        self.asked += len(users)
        return self.table[torch.from_numpy(users)][:, items.start : items.stop]


def parts(seed: int) -> Split:
    """Users with one to three held-out items in each part, or none."""
    draw = np.random.default_rng(seed)
    lists = [draw.permutation(N_ITEMS).tolist() for _ in range(N_USERS)]
    cuts = [draw.integers([1, 0, 0], [5, 4, 4]) for _ in lists]
    train, validation, test = (
        Ragged.from_lists(
            [row[sum(cut[:part]) : sum(cut[: part + 1])] for row, cut in zip(lists, cuts, strict=True)]
        )
        for part in range(3)
    )
    met = train.concat(validation).concat(test)
    users, items = (IdMap([str(i) for i in range(n)]) for n in (N_USERS, N_ITEMS))
    data = Interactions("toy", met.rows, met.values, None, users, items)
    return Split(data, "toy", False, train, validation, test, train.sorted_unique())


@settings(max_examples=12)
@given(seed=st.integers(0, 10**6), rows=st.integers(2, 13), chunk=st.integers(1, 60), batch=st.integers(2, 8))
def test_slices_give_the_same_ranks_as_whole_rows(seed, rows, chunk, batch):
    scores = torch.from_numpy(np.random.default_rng(seed).integers(0, 4, (N_USERS, N_ITEMS))).float()
    evaluator = Evaluator(parts(seed), seed, chunk=chunk)
    for rank in (evaluator.validation, evaluator.test):
        whole = rank(lambda users: scores[torch.from_numpy(users)])
        with patch.object(streaming, "BATCH", batch):
            found = rank(Sliced(scores, rows))
        for name in ("full_ranking", "sampled99_ranking"):
            one, two = getattr(whole, name), getattr(found, name)
            assert np.array_equal(one.users, two.users)
            assert np.array_equal(one.places, two.places)
    assert np.array_equal(whole.warm_ranking.places, found.warm_ranking.places)
    for one, two in zip(whole.lists.part, found.lists.part, strict=True):
        assert np.array_equal(one, two)


def test_the_first_pass_scores_only_slices_with_a_held_out_item():
    """Six users with one held-out item each, in slices of three items and two users at a time.

    Held out are the items 0, 0, 3, 4, 11, 11: the first pass needs one slice for each two users, so
    3 × 2 scores of slices, and the second one all four slices for six users.
    """
    held_out = [0, 4, 11, 0, 11, 3]
    none = Ragged.from_lists([[] for _ in held_out])
    test = Ragged.from_lists([[item] for item in held_out])
    users, items = (IdMap([str(i) for i in range(n)]) for n in (6, N_ITEMS))
    data = Interactions("toy", test.rows, test.values, None, users, items)
    sliced = Sliced(torch.rand(6, N_ITEMS), 3)
    Evaluator(Split(data, "toy", False, none, none, test, none), 0, chunk=6).test(sliced)
    assert sliced.asked == 3 * 2 + 4 * 6


def test_scores_that_are_not_finite_are_an_error():
    sliced = Sliced(torch.full((N_USERS, N_ITEMS), torch.nan), 5)
    with pytest.raises(DivergedError, match="not finite"):
        Evaluator(parts(0), 0).test(sliced)
