"""Information abundance of item tables by users' activity: whether those with little data lose dimensions.

The information abundance of a table is the sum of its singular values over the largest: d where all d
dimensions matter alike, 1 where the table has collapsed to a single direction.
"""

from __future__ import annotations

from collections.abc import Sequence

from solera.report.chart import Chart, Figure, Series, series_of
from solera.report.figures.activity import QUARTERS
from solera.report.figures.spectra import by_quarter
from solera.report.linear import information_abundance
from solera.report.recorded import Recorded
from solera.runs.tables import told_apart


def abundance(runs: Sequence[Recorded]) -> list[Figure]:
    """Of the tables that users are served with, by quarter of activity."""
    shown = [(run, values) for run in runs if (values := by_quarter(run)) is not None]
    if not shown:
        return []
    series = [series_of(run, [information_abundance(each) for each in values]) for run, values in shown]
    return [
        Figure(
            name="abundance",
            title="Information abundance of users' item tables",
            caption="Sum of singular values over the largest, of the tables that users are served with; mean "
            "of up to eight users of each quarter, evenly spread.",
            chart=Chart("bars", series, "users by training items", "information abundance", QUARTERS),
            columns=("run", *QUARTERS),
            rows=[(each.label, *each.y) for each in series],
        )
    ]


def abundance_by_user(runs: Sequence[Recorded]) -> list[Figure]:
    """Of every table that users have to do with, for each run: a point for each user who is looked at."""
    return [figure for run in runs if (figure := _by_user(run)) is not None]


def _by_user(run: Recorded) -> Figure | None:
    if run.users is None:
        return None
    sizes = [int(size) for size in run.users.train.lengths[run.users.some]]
    series = [
        Series(
            kind,
            [information_abundance(each) for each in values],
            sizes,
            colour=colour,
            key=f"abundance{run.number}-{colour}",
        )
        for colour, (kind, values) in enumerate(told_apart(run.users.spectra).items())
        if values[:, 0].all()
    ]
    if not series:
        return None
    return Figure(
        name=f"abundance-by-user-{run.number + 1}",
        title=f"Information abundance by user, {run.title}",
        caption=f"Sum of singular values over the largest, of the item tables of {len(sizes)} users who are "
        "spread evenly by activity.",
        chart=Chart("points", series, "training items", "information abundance", log_x=True),
        columns=("training items", *(each.label for each in series)),
        rows=[list(row) for row in zip(sizes, *(each.y for each in series), strict=True)],
    )
