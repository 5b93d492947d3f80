"""Rank held-out items from scores that are computed for a slice of the items at a time.

Two passes over the items: the first finds the scores of the held-out items, the second counts the items that
are better and, in a test, finds the best ones. Users are ordered by their held-out item, so that the first
pass skips most slices of most users. Both passes score the same users together: scores that are equal in one
are equal in the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from torch import Tensor

from solera.core.arrays import Floats, Ints
from solera.core.item_slices import ItemSlice, ItemSlices
from solera.core.parallel import in_order
from solera.data.ragged import Ragged
from solera.evaluate.beyond import NO_ITEMS, BestItems
from solera.evaluate.prepared import (
    PreparedPart,
    RankedBatch,
    UserChunk,
    checked_scores,
    gathered,
    ranks_among,
)

BATCH = 20_000  # users that are ranked in the same passes


def ranked_in_slices(
    slices: ItemSlices, part: PreparedPart, chunk: int, threads: int
) -> Iterator[RankedBatch]:
    """Rank all targets of a part.

    At most `chunk` scores are computed at a time, on each of so many threads.
    """
    size = max(1, chunk // slices.rows)
    # Every process goes through the items equally often, even if it has no users left.
    for number in range(slices.largest(-(-len(part.users) // BATCH))):
        users = part.users[number * BATCH : (number + 1) * BATCH]
        batch = (
            _Batch(next(iter(part.chunks(users, len(users)))), size, lists=part.is_test)
            if len(users)
            else None
        )
        through = slices.serve(users)
        for work in (_Users.find_targets, _Users.compare):
            for piece in through():
                deque(in_order(partial(work, piece=piece), batch.parts if batch else (), threads), maxlen=0)
        if batch:
            yield batch.ranked()


class _Batch:
    """Users that are ranked in the same passes, some at a time."""

    def __init__(self, whole: UserChunk, size: int, *, lists: bool) -> None:
        """With `lists`, find the best items too."""
        targets = whole.targets
        self._users = whole.users
        self._order = np.argsort(targets.values[targets.offsets[:-1]], kind="stable")
        self._lengths = targets.lengths[self._order]
        parts = (self._order[begin : begin + size] for begin in range(0, len(self._order), size))
        self.parts = [_Users(whole, rows, lists=lists) for rows in parts]

    def ranked(self) -> RankedBatch:
        """What was found, in the order of the users that were given."""
        back = np.argsort(self._order)
        places = Ragged.of_lengths(self._lengths, np.arange(self._lengths.sum()))
        targets = places.take(back).values
        full, sampled = (np.concatenate(each) for each in zip(*(u.ranks() for u in self.parts), strict=True))
        best = np.concatenate([each.best for each in self.parts])
        return RankedBatch(self._users, full[targets], sampled[targets], best[back] if len(best) else best)


class _Users:
    """Users that are scored together, and what has been found about their targets."""

    def __init__(self, whole: UserChunk, rows: Ints, *, lists: bool) -> None:
        self._users, self._negatives = whole.users[rows], whole.negatives[rows]
        self._targets, self._hidden = whole.targets.take(rows), whole.hidden.take(rows)
        self._known = whole.known.take(rows) if lists else None  # items that are not recommended
        self._best: BestItems | None = None
        self._above = np.zeros(len(self._targets.values))  # better items, and half of those that tie
        self._target_scores = torch.empty(0)
        self._negative_scores = torch.empty(0)

    def find_targets(self, piece: ItemSlice) -> None:
        """Keep the scores of targets in a slice."""
        inside, items = _inside(self._targets, piece.items)
        if not inside.any():
            return
        scores = self._scores(piece)
        if not len(self._target_scores):
            self._target_scores = scores.new_empty(len(inside))
        self._target_scores[torch.from_numpy(inside)] = gathered(scores, items)

    def compare(self, piece: ItemSlice) -> None:
        """Count the items of a slice that are better than targets, and keep what lists and ranks need."""
        scores = self._scores(piece)
        _, hidden = _inside(self._hidden, piece.items)
        self._above += ranks_among(scores, self._target_scores, self._targets, hidden) - 1.0
        if self._known is not None:
            found = BestItems.of(scores, _inside(self._known, piece.items)[1], piece.items.start)
            self._best = self._best.joined(found) if self._best else found
        if not len(self._negative_scores):
            self._negative_scores = scores.new_full(self._negatives.shape, -torch.inf)
        row, place = ((self._negatives >= piece.items.start) & (self._negatives < piece.items.stop)).nonzero()
        item = torch.from_numpy(self._negatives[row, place] - piece.items.start)
        user = torch.from_numpy(row)
        self._negative_scores[user, torch.from_numpy(place)] = scores[user, item]

    def ranks(self) -> tuple[Floats, Floats]:
        """The ranks of all targets: among all items, and among the negatives."""
        return 1.0 + self._above, ranks_among(self._negative_scores, self._target_scores, self._targets)

    @property
    def best(self) -> Ints:
        """The best items of every user, if they were asked for."""
        return self._best.numbers if self._best else NO_ITEMS

    def _scores(self, piece: ItemSlice) -> Tensor:
        return checked_scores(piece.scores(self._users), len(self._users), len(piece.items))


def _inside(lists: Ragged, items: range) -> tuple[np.ndarray[tuple[int], np.dtype[np.bool_]], Ragged]:
    """Which values are among the items, and these values numbered from the first item."""
    inside = (lists.values >= items.start) & (lists.values < items.stop)
    lengths = np.bincount(lists.rows[inside], minlength=len(lists))
    return inside, Ragged.of_lengths(lengths, lists.values[inside] - items.start)
