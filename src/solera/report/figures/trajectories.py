"""Where users' vectors go, round by round: with aggregation and without, in one plane for all runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from solera.core.arrays import Ints
from solera.report.chart import Cell, Chart, Figure, Series, series_of
from solera.report.linear import principal_plane
from solera.report.recorded import Recorded
from solera.runs.recorded import spread
from solera.runs.tables import Table

SHOWN = 3  # users: the least active, one in the middle, the most active of those recorded


def trajectories(runs: Sequence[Recorded]) -> list[Figure]:
    """The ways of some users' vectors, of two or more runs on one data set whose vectors have one length."""
    groups: dict[tuple[str, int], list[Recorded]] = {}
    for run in runs:
        if (ways := _ways(run)) is not None:
            groups.setdefault((run.dataset, ways.shape[2]), []).append(run)
    several = [group for group in groups.values() if len(group) > 1]
    return [figure for number, group in enumerate(several, 1) for figure in _group(number, group)]


def _group(number: int, runs: Sequence[Recorded]) -> Iterator[Figure]:
    """A figure for each user. The plane is that of all shown users and runs together."""
    users = _common_users(runs)
    points = [_of(run, users) for run in runs]  # [users, rounds, d] each
    flat = np.concatenate([ways.reshape(-1, ways.shape[2]) for ways in points])
    if not np.isfinite(flat).all() or not np.ptp(flat, axis=0).any():
        return
    places, share = principal_plane(flat)
    counts = np.cumsum([ways.shape[0] * ways.shape[1] for ways in points])[:-1]
    planes = [
        part.reshape(*ways.shape[:2], 2) for part, ways in zip(np.split(places, counts), points, strict=True)
    ]
    for place, user in enumerate(users):
        series = [_series(run, plane[place]) for run, plane in zip(runs, planes, strict=True)]
        yield Figure(
            name=f"trajectory-{number}-{place + 1}",
            title=f"The way of a user's vector, {_who(place, len(users))}",
            caption=f"User number {user} of {runs[0].dataset}, from before the first round to the last, "
            "which has the ring. The plane is that of the most variance over all rounds, runs and the "
            f"{len(users)} users shown, and has {share:.0%} of it.",
            chart=Chart("lines", series, "first component", "second component"),
            columns=("run", "round", "first component", "second component"),
            rows=_rows(series),
        )


def _series(run: Recorded, way: Table) -> Series:
    first, second = ([float(value) for value in way[:, axis]] for axis in (0, 1))
    named = [f"round {number}" for number in run.rounds if "vectors" in run.rounds[number]]
    return series_of(run, second, x=first, names=named, ring=len(way) - 1)


def _rows(series: Sequence[Series]) -> list[list[Cell]]:
    return [
        [each.label, name, x, y]
        for each in series
        for name, x, y in zip(each.names or (), each.x, each.y, strict=True)
    ]


def _who(place: int, count: int) -> str:
    if count == 1:
        return "recorded"
    return "least active" if place == 0 else "most active" if place == count - 1 else "middling"


def _common_users(runs: Sequence[Recorded]) -> Ints:
    """Some of those whom all runs have, by activity."""
    first, *others = (next(iter(run.rounds.values()))["users"] for run in runs)
    for each in others:
        first = first[np.isin(first, each)]
    return spread(first, SHOWN)


def _of(run: Recorded, users: Ints) -> Table:
    recorded = next(iter(run.rounds.values()))["users"]
    ways = _ways(run)
    assert ways is not None
    return ways[[int(np.flatnonzero(recorded == user)[0]) for user in users]]


def _ways(run: Recorded) -> Table | None:
    """[users, rounds, d]; None where a run has no course of vectors."""
    found = [arrays["vectors"] for arrays in run.rounds.values() if "vectors" in arrays]
    return np.stack(found, 1).astype(np.float64) if len(found) > 1 else None
