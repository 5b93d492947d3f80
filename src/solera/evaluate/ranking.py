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

from solera.core.arrays import Floats, Ints
from solera.core.errors import DivergedError
from solera.core.item_slices import ItemSlices
from solera.core.parallel import in_order
from solera.core.randomness import Purpose, client_keys
from solera.data.ragged import Ragged
from solera.data.split import Part, Split, history
from solera.evaluate import metrics
from solera.evaluate.beyond import DIVERSE, NO_ITEMS, Lists, best_items
from solera.evaluate.drawing import sample_unmet, spread_by_activity
from solera.evaluate.protocols import Protocol

N_NEGATIVES = 99
CHUNK = 4_000_000  # scores held in memory at once: users are evaluated in chunks of about CHUNK / n_items
KEPT = 20_000  # users of whom the drawn negatives are kept from one evaluation to the next
DRAWN = 4_000  # users whose negatives are drawn at once
PARTS: tuple[Part, ...] = ("validation", "test")

# The scores of ALL items for the given users, [len(users), n_items]; higher is better.
Score = Callable[[Ints], Tensor]
OnUsers = Callable[[int, int], None]


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

    def validation(self, score: Score | ItemSlices) -> Evaluation:
        """Rank the validation items, to select a round."""
        return self._evaluate(score, self._parts["validation"])

    def test(self, score: Score | ItemSlices, on_users: OnUsers | None = None) -> Evaluation:
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

    def _evaluate(
        self, score: Score | ItemSlices, part: PreparedPart, on_users: OnUsers | None = None
    ) -> Evaluation:
        if isinstance(score, ItemSlices):
            from solera.evaluate.streaming import ranked_in_slices  # noqa: PLC0415, rarely needed

            batches = ranked_in_slices(score, part, self._chunk, self._threads)
        else:
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
        full, sampled, best = [], [], [NO_ITEMS]
        for chunk in part.chunks(users, self._users_at_a_time):
            scores = checked_scores(score(chunk.users), len(chunk.users), self.n_items)
            targets = gathered(scores, chunk.targets)
            full.append(ranks_among(scores, targets, chunk.targets, chunk.hidden))
            sampled.append(ranks_among(_negative_scores(scores, chunk.negatives), targets, chunk.targets))
            if part.is_test:
                best.append(best_items(scores, chunk.known))
        return RankedBatch(users, np.concatenate(full), np.concatenate(sampled), np.concatenate(best))

    def _part(self, users: Ints, best: Ints) -> tuple[Ints, Ints, Ints]:
        """How often items are among the best of some users, and the best items of those in the sample."""
        sampled = np.isin(users, self._diverse)
        return np.bincount(best[best >= 0], minlength=self.n_items), users[sampled], best[sampled]


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


def _negative_scores(scores: Tensor, negatives: Ints) -> Tensor:
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
