"""What a run means for single users: its test items are ranked again with the model in its folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from solera.core.errors import RunError
from solera.data.interactions import Interactions
from solera.runs import Run, RunResult
from solera.runs.baseline import validate_baseline
from solera.runs.result import RANKINGS, Ranking, Rankings
from solera.study.records import UserGroup
from solera.study.statistics import SHOWN, Interval, by_activity, interval

_CLOSE = 0.002  # what rounding on another machine may do to a mean


@dataclass(frozen=True, eq=False)
class Users:
    """The users of one run: intervals of means over them, and how those of like activity fare."""

    data: Interactions
    intervals: Mapping[Ranking, Mapping[str, Interval]]  # of "hr@10" and "ndcg@10"
    popularity: Rankings  # what recommending the most popular items reaches on validation items
    groups: Sequence[UserGroup]


def users_of(path: Path, result: RunResult, data: Interactions) -> Users:
    """Rank a finished run's test items again. Raise an error if the recorded metrics are not reproduced."""
    run = Run.open(path, data=data)
    test, parts = run.evaluate(), run.parts
    rankings = zip(RANKINGS, (test.full_ranking, test.sampled99_ranking), strict=True)
    intervals = {
        kind: {metric: interval(ranking.per_user[metric]) for metric in SHOWN} for kind, ranking in rankings
    }
    for kind, found in intervals.items():
        for metric, now in found.items():
            if abs(now.mean - result.test[kind][metric]) > _CLOSE:
                raise RunError(
                    f"the model no longer reproduces the {metric} in its result.json: "
                    "the data set or the program has changed",
                    "train it again",
                )
    sizes = parts.train.lengths[test.full_ranking.users]
    return Users(
        data,
        intervals,
        validate_baseline("popularity", parts, seed=result.seed),
        by_activity(sizes, test),
    )
