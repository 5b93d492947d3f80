"""Rank the held-out items of every user, against all items and against 99 sampled items."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from solera.core.errors import DivergedError
from solera.core.randomness import Bits, Purpose, below, client_keys, draws, generator
from solera.core.threads import in_order
from solera.core.types import Floats, Ints
from solera.data.interactions import Part, Split, history
from solera.data.ragged import Ragged
from solera.evaluate import metrics
from solera.evaluate.beyond import DIVERSE, NO_ITEMS, Lists, best_items
from solera.evaluate.protocols import Protocol

SAMPLE = 2  # the stream of samples of users; 0 and 1 are those of validation and test


def spread_by_activity(users: Ints, lengths: Ints, count: int, seed: int) -> Ints:
    """A fixed sample of users, ascending: one of each of `count` groups of users with like activity.

    All of them, if there are not more.
    """
    if len(users) <= count:
        return users
    draw = generator(seed, Purpose.EVALUATION, SAMPLE)
    shuffled = draw.permutation(users)
    ordered = shuffled[np.argsort(lengths[shuffled], kind="stable")]
    bounds = np.linspace(0, len(users), count + 1).astype(np.int64)
    return np.sort(ordered[draw.integers(bounds[:-1], bounds[1:])])


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
        split = self._split
        met = split.data.by_user.take(users).sorted_unique()
        keys = client_keys(self._seed, Purpose.EVALUATION, PARTS.index(self._part), users)
        targets, known = self._held_out.take(users), history(split, self._part, users)
        hidden = known.concat(targets).sorted_unique()
        negatives = sample_unmet(met, split.data.n_items, N_NEGATIVES, keys)
        for begin in range(0, len(users), size):
            rows = np.arange(begin, min(begin + size, len(users)))
            yield UserChunk(
                users[rows], targets.take(rows), known.take(rows), hidden.take(rows), negatives[rows]
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


CHUNK = 4_000_000  # scores held in memory at once: users are evaluated in chunks of about CHUNK / n_items

# The scores of ALL items for the given users, [len(users), n_items]; higher is better.
Score = Callable[[Ints], Tensor]
OnUsers = Callable[[int, int], None]


class Evaluation:
    """One evaluation: mean metrics in `full` and `sampled99`, and the rankings behind them.

    Of a test, `warm` are the full-ranking metrics on items with a training row, `cold` the share of test
    items without one, and `lists` what users are recommended.
    """

    def __init__(
        self, full: Ranking, sampled99: Ranking, warm: Ranking | None = None, lists: Lists | None = None
    ) -> None:
        self.full_ranking = full
        self.sampled99_ranking = sampled99
        self.warm_ranking = warm
        self.lists = lists
        self.full = metrics.mean(full.per_user)
        self.sampled99 = metrics.mean(sampled99.per_user)
        self.warm = metrics.mean(warm.per_user) if warm and len(warm.places) else None
        self.cold = 1 - len(warm.places) / len(full.places) if warm else None

    def selected(self, protocol: Protocol, metric: str | None = None) -> float:
        """The metric that selects a round: the protocol's, or the given one in the protocol's ranking."""
        figures: dict[str, float] = getattr(self, protocol.select_on)
        return figures[metric or protocol.select_metric]

    def interval(self, protocol: Protocol, metric: str | None = None) -> tuple[float, float]:
        """The 95 % interval of `selected` over users, by the normal approximation."""
        ranking = self.full_ranking if protocol.select_on == "full" else self.sampled99_ranking
        values = ranking.per_user[metric or protocol.select_metric]
        middle, spread = float(values.mean()), float(values.std(ddof=1)) / len(values) ** 0.5
        return middle - 1.96 * spread, middle + 1.96 * spread


class Evaluator:
    """Evaluates scorers on one split. The sampled negatives depend on `seed` and the user alone.

    The rank of a held-out item is 1 + #{better} + #{tied}/2 among the candidates that are not held out
    for the same user in the same part. Candidates under `full` are all items except the user's
    history (training; at test time also validation). Under `sampled99` they are 99 items drawn
    uniformly, without repetition, from the items the user has met in no part (all of them if fewer).

    With `validated`, validation ranks a fixed sample of so many users; the test always ranks everybody.
    """

    def __init__(
        self,
        split: Split,
        seed: int,
        cutoffs: Iterable[int] = metrics.CUTOFFS,
        *,
        validated: int | None = None,
        chunk: int = CHUNK,
        threads: int = 1,
    ) -> None:
        """Scores of at most `chunk` items are computed at a time, on each of so many threads."""
        self._threads = threads
        self.cutoffs = metrics.with_always(cutoffs)
        self.n_items = split.data.n_items
        self._chunk = chunk
        self._users_at_a_time = max(1, chunk // self.n_items)
        self.scores_at_once = self._users_at_a_time * self.n_items
        self._parts = {part: PreparedPart(split, part, seed) for part in PARTS}
        self._lists = Lists(split.train, self.n_items, np.zeros(self.n_items, np.int64))
        tested, lengths = self._parts["test"].users, split.train.lengths
        self._diverse = spread_by_activity(tested, lengths, DIVERSE, seed)
        if validated is not None:
            self._parts["validation"].limit(validated)

    def restrict(self, users: Ints) -> None:
        """Rank only some of the users. To be called before any are ranked."""
        for part in self._parts.values():
            part.users = part.users[np.isin(part.users, users)]

    def users(self, part: Part) -> int:
        """Number of users that are ranked in a part."""
        return len(self._parts[part].users)

    def validation(self, score: Score) -> Evaluation:
        """Rank the validation items, to select a round."""
        return self._evaluate(score, self._parts["validation"])

    def validations(self, scores: Callable[[Ints], Iterable[Tensor]]) -> list[Evaluation]:
        """Validate several models at once: for some users, `scores` gives those of every model in turn."""
        part = self._parts["validation"]
        found: list[tuple[list[Floats], list[Floats]]] = []
        for users in part.batches(self._users_at_a_time):
            for chunk in part.chunks(users, self._users_at_a_time):
                for number, each in enumerate(scores(chunk.users)):
                    if number == len(found):
                        found.append(([], []))
                    scored = checked_scores(each, len(chunk.users), self.n_items)
                    for ranks, some in zip(found[number], _ranks(scored, chunk), strict=True):
                        ranks.append(some)
        made = ([part.ranking(np.concatenate(ranks), self.cutoffs) for ranks in each] for each in found)
        return [Evaluation(full, sampled) for full, sampled in made]

    def test(self, score: Score, on_users: OnUsers | None = None) -> Evaluation:
        """Rank the test items, once all choices are made. `on_users` hears of users done and their number."""
        return self._evaluate(score, self._parts["test"], on_users)

    def seconds_per_user(self, score: Score) -> float:
        """How long it takes to rank a user, measured on the first users of the test."""
        part = self._parts["test"]
        self._evaluate(score, part.first(self._users_at_a_time))
        some = part.first(2 * self._users_at_a_time)
        start = time.perf_counter()
        self._evaluate(score, some)
        at_once = min(self._threads or os.cpu_count() or 1, len(part.batches(self._users_at_a_time)))
        return (time.perf_counter() - start) / max(1, len(some.users)) / max(1, at_once)

    def _evaluate(self, score: Score, part: PreparedPart, on_users: OnUsers | None = None) -> Evaluation:
        ranked = partial(self._ranked, score, part)
        batches = in_order(ranked, part.batches(self._users_at_a_time), self._threads)
        done, lists = 0, self._lists
        of_all, of_sampled = [np.zeros(0)], [np.zeros(0)]
        for batch in batches:
            of_all.append(batch.full)
            of_sampled.append(batch.sampled)
            if part.is_test:
                lists = lists.joined([lists.part, self._part(batch.users, batch.best)])
            done += len(batch.users)
            if on_users:
                on_users(done, len(part.users))
        ranks = np.concatenate(of_all)
        return Evaluation(
            part.ranking(ranks, self.cutoffs),
            part.ranking(np.concatenate(of_sampled), self.cutoffs),
            part.warm(ranks, self.cutoffs) if part.is_test else None,
            lists if part.is_test else None,
        )

    def _ranked(self, score: Score, part: PreparedPart, users: Ints) -> RankedBatch:
        full: list[Floats] = []
        sampled: list[Floats] = []
        best = [NO_ITEMS]
        for chunk in part.chunks(users, self._users_at_a_time):
            scores = checked_scores(score(chunk.users), len(chunk.users), self.n_items)
            for ranks, some in zip((full, sampled), _ranks(scores, chunk), strict=True):
                ranks.append(some)
            if part.is_test:
                best.append(best_items(scores, chunk.known))
        return RankedBatch(users, np.concatenate(full), np.concatenate(sampled), np.concatenate(best))

    def _part(self, users: Ints, best: Ints) -> tuple[Ints, Ints, Ints]:
        """How often items are among the best of some users, and the best items of those in the sample."""
        sampled = np.isin(users, self._diverse)
        return np.bincount(best[best >= 0], minlength=self.n_items), users[sampled], best[sampled]


def _ranks(scores: Tensor, chunk: UserChunk) -> tuple[Floats, Floats]:
    """The ranks of a chunk's targets among all items, and among sampled ones."""
    targets = gathered(scores, chunk.targets)
    return (
        ranks_among(scores, targets, chunk.targets, chunk.hidden),
        ranks_among(negative_scores(scores, chunk.negatives), targets, chunk.targets),
    )
