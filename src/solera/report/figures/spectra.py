"""Whether item tables use their dimensions: singular values, and information abundance by users' activity.

The information abundance of a table is the sum of its singular values over the largest: d where all d
dimensions matter alike, 1 where the table has collapsed to a single direction.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from solera.data.ragged import Ints
from solera.report.chart import Chart, Figure, by_x, series_of
from solera.report.figures.activity import QUARTERS
from solera.report.recorded import Recorded
from solera.report.tables import Table, personal_tables, shared_table

USERS = 8  # of a quarter whose tables are looked at


def spectra(runs: Sequence[Recorded]) -> list[Figure]:
    """The singular values of the shared tables, the largest of each being 1."""
    series, found = [], []
    for run in runs:
        table = shared_table(run)
        if table is not None and table.any():
            values = singular_values(table)
            order = list(range(1, len(values) + 1))
            series.append(series_of(run, [float(value / values[0]) for value in values], x=order))
            found.append(f"{run.title} {information_abundance(table):.1f} of {len(values)}")
    if not series:
        return []
    return [
        Figure(
            name="spectra",
            title="Singular values of the shared item table",
            caption=f"Relative to the largest. Information abundance: {', '.join(found)}.",
            chart=Chart("lines", series, "number", "singular value / largest"),
            columns=("number", *(each.label for each in series)),
            rows=by_x(series),
        )
    ]


def abundance(runs: Sequence[Recorded]) -> list[Figure]:
    """Information abundance of users' own item tables, by quarter of activity."""
    series = []
    for run in runs:
        if run.users and len(run.users.groups) == len(QUARTERS):
            chosen = [_some(run.users.quarter(group)) for group in run.users.groups]
            means = [_mean(list(personal_tables(run, users))) for users in chosen]
            known = [mean for mean in means if mean is not None]
            if len(known) == len(QUARTERS):
                series.append(series_of(run, known))
    if not series:
        return []
    return [
        Figure(
            name="abundance",
            title="Information abundance of users' own item tables",
            caption=f"Sum of singular values over the largest; mean of up to {USERS} users of each quarter, "
            "evenly spread. Own tables are a method's personal ones, or the shared one as a user keeps it.",
            chart=Chart("bars", series, "users by training items", "information abundance", QUARTERS),
            columns=("run", *QUARTERS),
            rows=[(each.label, *each.y) for each in series],
        )
    ]


def singular_values(table: Table) -> Table:
    """In descending order; from the small matrix of inner products, which is enough for a picture."""
    eigen = np.linalg.eigvalsh(table.T @ table)[::-1]
    values: Table = np.sqrt(np.clip(eigen, 0.0, None))
    return values


def information_abundance(table: Table) -> float:
    """The sum of singular values over the largest."""
    values = singular_values(table)
    return float(values.sum() / values[0])


def _some(users: Ints) -> Ints:
    places = np.linspace(0, len(users) - 1, min(USERS, len(users))).astype(np.int64)
    return users[places]


def _mean(tables: Sequence[Table]) -> float | None:
    found = [information_abundance(table) for table in tables if table.any()]
    return float(np.mean(found)) if found else None
