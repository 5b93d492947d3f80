"""Means over seeds, intervals over users, and users in groups by how active they are."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from solera.core.types import Floats, Ints
from solera.evaluate import Evaluation
from solera.study.records import UserGroup

RESAMPLES = 2000
LEVEL = 0.95
SHOWN = ("hr@10", "ndcg@10")
# Where ranges of ratings begin; PFedRec's inactive users have 5–19 or 20–29.
RATINGS = (5, 20, 30, 50, 100, 200)


class Spread(NamedTuple):
    """A mean and the standard deviation of what it is of, None of one value."""

    mean: float
    sd: float | None


class Interval(NamedTuple):
    """A mean and the bounds it is within."""

    mean: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    """Mean and (n − 1) standard deviation."""
    return Spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)


def interval(values: Floats, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """The mean with its 95 % bootstrap interval (percentiles), `values` being one for every user.

    The same for the same values in any order: they are drawn from in ascending order, with a fixed seed.
    Of differences between two scorers, user by user, this is the paired bootstrap.
    """
    ordered = np.sort(values)
    draw = np.random.default_rng(seed)
    means = [ordered[draw.integers(len(ordered), size=len(ordered))].mean() for _ in range(resamples)]
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(ordered.mean()), float(low), float(high))


class Paired(NamedTuple):
    """The mean of users' differences between two models, and the standard error of that mean."""

    mean: float
    error: float

    @property
    def p(self) -> float:
        """Probability of such a mean or a larger one, of either sign, if there is no difference."""
        if not self.error:
            return float(not self.mean)
        return math.erfc(abs(self.mean) / self.error / math.sqrt(2))

    def interval(self, chance: float) -> Interval:
        """The interval that misses the true mean with this probability, by the normal distribution."""
        around = statistics.NormalDist().inv_cdf(1 - chance / 2) * self.error if self.error else 0.0
        return Interval(self.mean, self.mean - around, self.mean + around)


def paired(ours: Floats, theirs: Floats) -> Paired:
    """Compare two models user by user."""
    differences = ours - theirs
    error = float(differences.std(ddof=1)) / math.sqrt(len(differences)) if len(differences) > 1 else math.inf
    return Paired(float(differences.mean()), error)


def holm(found: Sequence[Paired]) -> list[Interval]:
    """An interval for each of many comparisons (Holm 1979), in their order.

    All intervals without zero have the right sign at once with 95 %. The smallest of m probabilities is held
    against 5 %/m, the next against 5 %/(m − 1), and so on. The first that is not below its bound ends this:
    it and all larger ones have the interval of that bound, which contains zero.
    """
    intervals: list[Interval | None] = [None] * len(found)
    chance, ended = 0.0, False
    order = sorted(range(len(found)), key=lambda number: found[number].p)
    for place, number in enumerate(order):
        if not ended:
            chance = (1 - LEVEL) / (len(found) - place)
            ended = found[number].p >= chance
        intervals[number] = found[number].interval(chance)
    return [each for each in intervals if each is not None]


def by_activity(sizes: Ints, test: Evaluation, count: int = 4) -> list[UserGroup]:
    """Users in quarters by their number of training items, `sizes` having one for every evaluated user.

    Users of equal numbers are in the same quarter, so quarters are of about the same size only; one that
    would be empty is left out. With another `count` they are so many parts instead of four.
    """
    quarter = np.searchsorted(np.quantile(sizes, np.arange(1, count) / count, method="inverted_cdf"), sizes)
    return _groups(quarter, sizes, test)


def by_ratings(sizes: Ints, test: Evaluation) -> list[UserGroup]:
    """Users by their number of rows, in fixed ranges; `sizes` has one for every evaluated user.

    `least` and `most` are the bounds of a range that has users. The last one ends with the most active user.
    """
    places = np.searchsorted(np.array(RATINGS), sizes, side="right")
    bounds = (0, *RATINGS)
    return [
        group.model_copy(
            update={
                "least": bounds[number],
                "most": RATINGS[number] - 1 if number < len(RATINGS) else group.most,
            }
        )
        for number, group in zip(np.unique(places), _groups(places, sizes, test), strict=True)
    ]


def _groups(number_of: Ints, sizes: Ints, test: Evaluation) -> list[UserGroup]:
    full, sampled99 = test.full_ranking.per_user, test.sampled99_ranking.per_user
    groups = []
    for number in np.unique(number_of):
        members = number_of == number
        groups.append(
            UserGroup(
                least=int(sizes[members].min()),
                most=int(sizes[members].max()),
                users=int(members.sum()),
                full={metric: float(full[metric][members].mean()) for metric in SHOWN},
                sampled99={metric: float(sampled99[metric][members].mean()) for metric in SHOWN},
            )
        )
    return groups
