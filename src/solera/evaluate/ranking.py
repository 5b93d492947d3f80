"""Rank the held-out items of every user, against all items and against 99 sampled items."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
from torch import Tensor

from solera.core.threads import in_order
from solera.core.types import Floats, Ints
from solera.data.interactions import Part, Split
from solera.evaluate import metrics
from solera.evaluate.beyond import DIVERSE, NO_ITEMS, Lists, best_items
from solera.evaluate.drawing import spread_by_activity
from solera.evaluate.prepared import (
    PARTS,
    PreparedPart,
    RankedBatch,
    Ranking,
    UserChunk,
    checked_scores,
    gathered,
    negative_scores,
    ranks_among,
)
from solera.evaluate.protocols import Protocol

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
