"""Held-out items that are prepared to be ranked, and their ranks among scores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from solera.core.errors import DivergedError
from solera.core.randomness import Purpose, client_keys
from solera.core.types import Floats, Ints
from solera.data.interactions import Part, Split, history
from solera.data.ragged import Ragged
from solera.evaluate import metrics
from solera.evaluate.drawing import sample_unmet, spread_by_activity

N_NEGATIVES = 99
KEPT = 20_000  # users of whom the drawn negatives are kept from one evaluation to the next
DRAWN = 4_000  # users whose negatives are drawn at once
PARTS: tuple[Part, ...] = ("validation", "test")


@dataclass(frozen=True, eq=False)
class Ranking:
    """Places of the held-out items of every evaluated user: user after user, best place first."""

    users: Ints
    counts: Ints
    places: Floats
    cutoffs: tuple[int, ...] = metrics.CUTOFFS

    @cached_property
    def per_user(self) -> dict[str, Floats]:
        """Every metric for each of `users`."""
        return metrics.per_user(self.places, self.counts, self.cutoffs)


class RankedBatch(NamedTuple):
    """Users, the ranks of their targets, user after user, and their best items, [users, K], in a test."""

    users: Ints
    full: Floats  # among all items
    sampled: Floats  # among the sampled ones
    best: Ints


class UserChunk(NamedTuple):
    """Some users of one part; every other field has one row per user."""

    users: Ints
    targets: Ragged
    known: Ragged  # the history, which is not recommended
    hidden: Ragged  # items that do not compete under full ranking: the history and the targets themselves
    negatives: Ints  # [users, N_NEGATIVES], padded with -1


class PreparedPart:
    """The evaluated users of one part. What ranking needs of them is made in chunks, when it is needed."""

    def __init__(self, split: Split, part: Part, seed: int) -> None:
        self._split, self._part, self._seed = split, part, seed
        self._held_out = split.validation if part == "validation" else split.test
        self.users: Ints = np.flatnonzero(self._held_out.lengths)
        self._kept: dict[tuple[int, int], list[UserChunk]] = {}
        self.is_test = part == "test"

    def limit(self, count: int) -> None:
        """Keep a sample of the users in which all degrees of activity have their share."""
        self.users = spread_by_activity(self.users, self._split.train.lengths, count, self._seed)

    def first(self, count: int) -> PreparedPart:
        """The first users alone."""
        some = PreparedPart(self._split, self._part, self._seed)
        some.users = self.users[:count]
        return some

    def batches(self, size: int) -> list[Ints]:
        """The users in batches, each of some chunks of `size` users."""
        batch = max(1, DRAWN // size) * size
        return [self.users[start : start + batch] for start in range(0, len(self.users), batch)]

    def chunks(self, users: Ints, size: int) -> Iterable[UserChunk]:
        """A batch in chunks of `size` users."""
        if len(self.users) > KEPT:
            return self._made(users, size)
        key = int(users[0]), size
        if key not in self._kept:
            self._kept[key] = list(self._made(users, size))
        return self._kept[key]

    def _made(self, users: Ints, size: int) -> Iterator[UserChunk]:
        whole = self._chunk(users)
        for begin in range(0, len(users), size):
            rows = np.arange(begin, min(begin + size, len(users)))
            yield UserChunk(
                users[rows],
                whole.targets.take(rows),
                whole.known.take(rows),
                whole.hidden.take(rows),
                whole.negatives[rows],
            )

    def _chunk(self, users: Ints) -> UserChunk:
        split = self._split
        met = split.data.by_user.take(users).sorted_unique()
        keys = client_keys(self._seed, Purpose.EVALUATION, PARTS.index(self._part), users)
        held_out = self._held_out.take(users)
        known = history(split, self._part, users)
        return UserChunk(
            users,
            held_out,
            known,
            known.concat(held_out).sorted_unique(),
            sample_unmet(met, split.data.n_items, N_NEGATIVES, keys),
        )

    def ranking(self, ranks: Floats, cutoffs: tuple[int, ...]) -> Ranking:
        """The ranking with the given ranks of all targets, user after user."""
        counts = self._held_out.lengths[self.users]
        return Ranking(self.users, counts, metrics.places(ranks, counts), cutoffs)

    def warm(self, ranks: Floats, cutoffs: tuple[int, ...]) -> Ranking:
        """The ranking of held-out items that occur in training; cold ones are still among their rivals."""
        targets = self._held_out.take(self.users)
        known = np.bincount(self._split.train.values, minlength=self._split.data.n_items) > 0
        warm = known[targets.values]
        counts = np.bincount(targets.rows[warm], minlength=len(self.users))
        some = counts > 0
        places = metrics.places(ranks[warm], counts[some])
        return Ranking(self.users[some], counts[some], places, cutoffs)


def checked_scores(scores: Tensor, n_users: int, n_items: int) -> Tensor:
    """Scores on the CPU. Raises an error if they are not finite."""
    if scores.shape != (n_users, n_items):
        raise ValueError(f"scores must be [{n_users}, {n_items}], not {list(scores.shape)}")
    scores = scores.detach().cpu()
    low, high = torch.aminmax(scores)  # one pass; NaN makes both NaN
    if not (torch.isfinite(low) and torch.isfinite(high)):
        raise DivergedError(
            "the model's scores are not finite: training has diverged", "lower the learning rate"
        )
    return scores


def gathered(scores: Tensor, items: Ragged) -> Tensor:
    """The scores of every user's own items, user after user."""
    return scores[torch.from_numpy(items.rows), torch.from_numpy(items.values)]


def negative_scores(scores: Tensor, negatives: Ints) -> Tensor:
    """The scores of every user's negatives, -inf where there is none."""
    index = torch.from_numpy(negatives)
    return scores.gather(1, index.clamp(min=0)).masked_fill(index < 0, -torch.inf)


def ranks_among(
    rivals: Tensor, target_scores: Tensor, targets: Ragged, hidden: Ragged | None = None
) -> Floats:
    """1 + #{better} + #{tied}/2 of every target among its row of rivals, without the hidden ones.

    Processes the first targets of all rows at once, then the second ones of the rows that have one, and so
    on.
    """
    ranks, table = np.empty(len(targets.values)), rivals.numpy()
    apart = None if hidden is None else gathered(rivals, hidden)
    for nth in range(int(targets.lengths.max())):
        rows = np.flatnonzero(targets.lengths > nth)
        at = targets.offsets[rows] + nth
        score = target_scores[torch.from_numpy(at)]
        # Row by row: what is compared stays in the processor's cache, ten times as fast as all at once.
        doubled = np.array(
            [
                np.count_nonzero(table[row] > one) + np.count_nonzero(table[row] >= one)
                for row, one in zip(rows.tolist(), score.numpy(), strict=True)
            ],
            dtype=np.float64,
        )
        if hidden is not None and apart is not None:
            doubled -= _counted_twice(apart, hidden, rows, score)
        ranks[at] = 1.0 + doubled / 2.0
    return ranks


def _counted_twice(apart: Tensor, hidden: Ragged, rows: Ints, score: Tensor) -> Floats:
    """#{better} + #{at least as good} among the hidden items of the given rows."""
    of_row = torch.full((len(hidden),), torch.inf, dtype=score.dtype)
    of_row[torch.from_numpy(rows)] = score
    own = of_row[torch.from_numpy(hidden.rows)]
    doubled = ((apart > own).double() + (apart >= own).double()).numpy()
    total = np.zeros(len(hidden))
    np.add.at(total, hidden.rows, doubled)
    return total[rows]
