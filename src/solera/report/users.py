"""What a run means for single users: its test items are ranked again with the model in its folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from solera.bench.records import UserGroup
from solera.bench.statistics import SHOWN, Interval, by_activity, interval
from solera.core.arrays import Ints
from solera.core.errors import RunError
from solera.data.interactions import Interactions
from solera.data.ragged import Ragged
from solera.evaluate import Evaluation
from solera.report.linear import singular_values
from solera.runs import Run, RunResult
from solera.runs.baseline import validate_baseline
from solera.runs.recorded import by_activity as least_active_first
from solera.runs.recorded import middling, spread
from solera.runs.result import RANKINGS, Ranking, Rankings
from solera.runs.table_owners import THEIR_OWN
from solera.runs.tables import Table

SOME = 32  # users whose tables are looked at, eight of each quarter
_CLOSE = 0.002  # what rounding on another machine may do to a mean


@dataclass(frozen=True, eq=False)
class Users:
    """The users of one run: intervals of means over them, and how those of like activity fare."""

    data: Interactions
    train: Ragged  # everybody's training items
    intervals: Mapping[Ranking, Mapping[str, Interval]]  # of "hr@10" and "ndcg@10"
    popularity: Rankings  # what recommending the most popular items reaches on validation items
    groups: Sequence[UserGroup]
    middle: int  # a user of middling activity,
    tables: Mapping[str, Table]  # whose item tables these are, by what they are,
    vector: Table | None  # and whose vector this is, if users have one
    served: Mapping[str, Evaluation]  # with their own item tables, the server's, another user's
    some: Ints  # users, the least active first,
    spectra: Mapping[str, Table]  # and the singular values of their tables, [users, d]


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
    some = spread(least_active_first(parts.train.lengths), SOME)
    middle = middling(parts.train.lengths)
    return Users(
        data,
        parts.train,
        intervals,
        validate_baseline("popularity", parts, seed=result.seed),
        by_activity(sizes, test),
        middle,
        run.item_tables(middle),
        run.user_vector(middle),
        {owner: test if owner == THEIR_OWN else run.evaluate(owner) for owner in run.table_owners},
        some,
        _spectra(run, some),
    )


def _spectra(run: Run, users: Ints) -> dict[str, Table]:
    found: dict[str, list[Table]] = {}
    for user in users:
        for kind, table in run.item_tables(int(user)).items():
            found.setdefault(kind, []).append(singular_values(table))
    return {kind: np.array(values) for kind, values in found.items() if len(values) == len(users)}
