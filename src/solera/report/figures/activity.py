"""Metrics by activity: users in quarters by their number of training items."""

from __future__ import annotations

from collections.abc import Sequence

from solera.report.chart import Chart, Figure, series_of
from solera.report.figures.headline import ONE_OF_EACH, RANKINGS
from solera.report.recorded import Recorded

QUARTERS = ("least active", "second", "third", "most active")


def activity(runs: Sequence[Recorded]) -> list[Figure]:
    """Figures on test items by quarter, of the runs whose users all four quarters are filled by."""
    shown = [(run, run.users.groups) for run in runs if run.users and len(run.users.groups) == len(QUARTERS)]
    if not shown:
        return []
    return [
        Figure(
            name=f"activity-{kind}",
            title=f"{metric.upper()} by users' activity, {RANKINGS[kind]}",
            caption="Users in quarters by their number of training items; means on test items.",
            chart=Chart(
                "bars",
                [series_of(run, [getattr(group, kind)[metric] for group in groups]) for run, groups in shown],
                "users by training items",
                metric.upper(),
                QUARTERS,
            ),
            columns=("run", "quarter", "training items", "users", metric.upper()),
            rows=[
                (run.title, quarter, f"{group.least}–{group.most}", group.users, getattr(group, kind)[metric])
                for run, groups in shown
                for quarter, group in zip(QUARTERS, groups, strict=True)
            ],
        )
        for kind, metric in ONE_OF_EACH.items()
    ]
