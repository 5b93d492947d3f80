"""Rank the held-out items of every user, against all items and against 99 sampled items."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from solera.core.arrays import Floats, Ints
from solera.core.errors import DivergedError
from solera.core.randomness import Bits, Purpose, below, client_keys, draws
from solera.data.ragged import Ragged
from solera.data.split import Part, Split, history
from solera.evaluate import metrics
from solera.evaluate.protocols import Protocol

N_NEGATIVES = 99
CHUNK = 4_000_000  # scores held in memory at once: users are evaluated in chunks of about CHUNK / n_items
PARTS: tuple[Part, ...] = ("validation", "test")

# The scores of ALL items for the given users, [len(users), n_items]; higher is better.
Score = Callable[[Ints], Tensor]


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


class Evaluation:
    """One evaluation: mean metrics in `full` and `sampled99`, and the rankings behind them."""

    def __init__(self, full: Ranking, sampled99: Ranking) -> None:
        self.full_ranking = full
        self.sampled99_ranking = sampled99
        self.full = metrics.mean(full.per_user)
        self.sampled99 = metrics.mean(sampled99.per_user)

    def selected(self, protocol: Protocol, metric: str | None = None) -> float:
        """The metric that selects a round: the protocol's, or the given one in the protocol's ranking."""
        figures: dict[str, float] = getattr(self, protocol.select_on)
        return figures[metric or protocol.select_metric]


class Evaluator:
    """Evaluates scorers on one split. The sampled negatives are drawn once, from `seed`.

    The rank of a held-out item is 1 + #{better} + #{tied}/2 among the candidates that are not held out
    for the same user in the same part. Candidates under `full` are all items except the user's
    history (training; at test time also validation). Under `sampled99` they are 99 items drawn
    uniformly, without repetition, from the items the user has met in no part (all of them if fewer).
    """

    def __init__(self, split: Split, seed: int, cutoffs: Iterable[int] = metrics.CUTOFFS) -> None:
        self.cutoffs = metrics.with_always(cutoffs)
        self.n_items = split.data.n_items
        met = split.data.by_user.sorted_unique()
        self._parts = {part: _Prepared.of(split, part, met, seed) for part in PARTS}

    def validation(self, score: Score) -> Evaluation:
        """Rank the validation items, to select a round."""
        return self._evaluate(score, self._parts["validation"])

    def test(self, score: Score) -> Evaluation:
        """Rank the test items, once all choices are made."""
        return self._evaluate(score, self._parts["test"])

    def _evaluate(self, score: Score, part: _Prepared) -> Evaluation:
        size = max(1, CHUNK // self.n_items)
        full, sampled = [], []
        for chunk in part.chunks(size):
            scores = _checked(score(chunk.users), len(chunk.users), self.n_items)
            targets = _gather(scores, chunk.targets)
            full.append(_ranks(_without(scores, chunk.hidden), targets, chunk.targets))
            sampled.append(_ranks(_negative_scores(scores, chunk.negatives), targets, chunk.targets))
        return Evaluation(
            part.ranking(np.concatenate(full), self.cutoffs),
            part.ranking(np.concatenate(sampled), self.cutoffs),
        )


@dataclass(frozen=True, eq=False)
class _Prepared:
    """The evaluated users of one part; every other field has one row per such user."""

    users: Ints
    targets: Ragged
    hidden: Ragged  # items that do not compete under full ranking: the history and the targets themselves
    negatives: Ints  # [users, N_NEGATIVES], padded with -1

    @classmethod
    def of(cls, split: Split, part: Part, met: Ragged, seed: int) -> _Prepared:
        held_out = split.validation if part == "validation" else split.test
        users = np.flatnonzero(held_out.lengths)
        hidden = history(split, part).concat(held_out)
        keys = client_keys(seed, Purpose.EVALUATION, PARTS.index(part), users)
        negatives = sample_unmet(met.take(users), split.data.n_items, N_NEGATIVES, keys)
        return cls(users, held_out.take(users), hidden.take(users), negatives)

    def chunks(self, size: int) -> Iterator[_Prepared]:
        for start in range(0, len(self.users), size):
            rows = np.arange(start, min(start + size, len(self.users)))
            yield _Prepared(
                self.users[rows], self.targets.take(rows), self.hidden.take(rows), self.negatives[rows]
            )

    def ranking(self, ranks: Floats, cutoffs: tuple[int, ...]) -> Ranking:
        counts = self.targets.lengths
        return Ranking(self.users, counts, metrics.places(ranks, counts), cutoffs)


def sample_unmet(met: Ragged, n_items: int, size: int, keys: Bits) -> Ints:
    """Draw `size` items that are not in `met` (sorted, unique) for every user, uniformly without repetition.

    Returns [users, size], with -1 where a user has fewer unmet items. The result for a user depends only on
    the key of the user's own stream. Uses Floyd's algorithm, one step for all users at a time: step j draws t
    from 0…j and takes t, or j if t was taken before.
    """
    bits = draws(keys, np.full(len(met), size)).reshape(len(met), size)
    unmet = n_items - met.lengths
    drawn = np.full((len(met), size), -1, dtype=np.int64)
    for step in range(size):
        j = unmet - size + step  # negative if fewer than `size` items can be drawn
        t = below(bits[:, step], j + 1)
        taken = (drawn[:, :step] == t[:, None]).any(axis=1)
        drawn[:, step] = np.where(j < 0, -1, np.where(taken, j, t))
    return _nth_unmet(met, n_items, drawn)


def _nth_unmet(met: Ragged, n_items: int, nth: Ints) -> Ints:
    """The nth[u, ·]-th item (from 0) that user u has not met: n plus the number of met items below it.

    The i-th met item a_i has a_i − i unmet items below it, so it lies below the n-th unmet one exactly
    if a_i − i ≤ n. a_i − i never decreases along a row, so one sorted search serves all users.
    """
    below = met.values - (np.arange(len(met.values)) - np.repeat(met.offsets[:-1], met.lengths))
    rows = np.arange(len(met))[:, None]
    keys = met.rows * (n_items + 1) + below
    found = np.searchsorted(keys, rows * (n_items + 1) + nth, side="right") - met.offsets[:-1, None]
    return np.where(nth < 0, -1, nth + found)


def _checked(scores: Tensor, n_users: int, n_items: int) -> Tensor:
    if scores.shape != (n_users, n_items):
        raise ValueError(f"scores must be [{n_users}, {n_items}], not {list(scores.shape)}")
    scores = scores.detach().cpu()
    low, high = torch.aminmax(scores)  # one pass; NaN makes both NaN
    if not (torch.isfinite(low) and torch.isfinite(high)):
        raise DivergedError(
            "the model's scores are not finite: training has diverged", "lower the learning rate"
        )
    return scores


def _gather(scores: Tensor, items: Ragged) -> Tensor:
    return scores[torch.from_numpy(items.rows), torch.from_numpy(items.values)]


def _without(scores: Tensor, items: Ragged) -> Tensor:
    """A copy (the scorer may keep its tensor) with the scores of the given items set to −∞."""
    where = (torch.from_numpy(items.rows), torch.from_numpy(items.values))
    return scores.index_put(where, scores.new_tensor(-torch.inf))


def _negative_scores(scores: Tensor, negatives: Ints) -> Tensor:
    index = torch.from_numpy(negatives)
    return scores.gather(1, index.clamp(min=0)).masked_fill(index < 0, -torch.inf)


def _ranks(rivals: Tensor, target_scores: Tensor, targets: Ragged) -> Floats:
    """1 + #{better} + #{tied}/2 of every target among its row of rivals.

    Processes the first targets of all rows at once, then the second ones of the rows that have one, and so
    on.
    """
    ranks = np.empty(len(targets.values))
    for nth in range(int(targets.lengths.max())):
        rows = np.flatnonzero(targets.lengths > nth)
        at = targets.offsets[rows] + nth
        row_scores = rivals if len(rows) == len(targets) else rivals[torch.from_numpy(rows)]
        score = target_scores[torch.from_numpy(at), None]
        better = (row_scores > score).sum(1, dtype=torch.int32)
        at_least = (row_scores >= score).sum(1, dtype=torch.int32)
        ranks[at] = 1.0 + (better + at_least).double().numpy() / 2.0
    return ranks
