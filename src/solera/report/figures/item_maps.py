"""Item vectors on paper, table by table, the own items of one user marked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from solera.data.ragged import Ints
from solera.report.chart import Cell, Chart, Figure, Series
from solera.report.figures.projection import project
from solera.report.recorded import Recorded
from solera.report.users import Users
from solera.runs.recorded import spread
from solera.runs.tables import Table, told_apart

MOST = 400  # items drawn beside the user's own
OTHERS, OWN = 9, 1  # colours


def item_maps(runs: Sequence[Recorded]) -> list[Figure]:
    """For every run whose data is at hand: the tables that a user of middling activity has to do with."""
    return [
        _map(run, run.users, number, kind, table)
        for run in runs
        if run.users
        for number, (kind, table) in enumerate(told_apart(run.users.tables).items(), start=1)
        if np.isfinite(table).all() and np.ptp(table, axis=0).any()
    ]


def _map(run: Recorded, users: Users, number: int, kind: str, table: Table) -> Figure:
    own = np.unique(users.train.row(users.middle))
    rest = spread(np.setdiff1d(np.arange(len(table)), own), MOST)
    found = project(table[np.concatenate([rest, own])])
    groups = (("other items", rest, OTHERS, 0), ("the user's training items", own, OWN, len(rest)))
    rows: list[list[Cell]] = []
    clouds = []
    for group, items, colour, start in groups:
        places = found.places[start : start + len(items)]
        titles = titles_of(users, items)
        clouds.append(cloud(group, places, titles, colour, f"map{run.number}-{colour}"))
        rows += [[group, title, float(x), float(y)] for title, (x, y) in zip(titles, places, strict=True)]
    return Figure(
        name=f"item-map-{run.number + 1}-{number}",
        title=f"Items of {run.title}, table {kind}",
        caption=f"A user of middling activity, with {len(own)} training items, and {len(rest)} of the other "
        f"items; {found.words}.",
        chart=Chart("points", clouds, *found.axes),
        columns=("group", "item", "first", "second"),
        rows=rows,
    )


def titles_of(users: Users, items: Ints) -> list[str]:
    """What the items are called."""
    return [users.data.title(int(item)) for item in items]


def cloud(label: str, places: Table, names: Sequence[str], colour: int, key: str) -> Series:
    """Points [n, 2] under one name."""
    return Series(
        label,
        [float(y) for y in places[:, 1]],
        [float(x) for x in places[:, 0]],
        names=names,
        colour=colour,
        key=key,
    )
