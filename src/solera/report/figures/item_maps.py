"""Maps of item vectors, table by table, with one user's items marked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from solera.core.arrays import Ints
from solera.report.chart import Cell, Chart, Figure, Series
from solera.report.figures.projection import project
from solera.report.recorded import Recorded
from solera.report.users import Users
from solera.runs.recorded import spread
from solera.runs.tables import Table, told_apart

MOST = 400  # items drawn beside the user's own
OTHERS, OWN, USER = 9, 1, 2  # colours


def item_maps(runs: Sequence[Recorded]) -> Iterator[Figure]:
    """For every run whose data is at hand: the tables that a user of middling activity has to do with."""
    return (
        _map(run, run.users, number, kind)
        for run in runs
        if run.users
        for number, kind in enumerate(told_apart(run.users.tables), start=1)
        if drawable(run.users.tables[kind])
    )


def _map(run: Recorded, users: Users, number: int, kind: str) -> Figure:
    table = users.tables[kind]
    items = np.arange(len(table))
    own = np.isin(items, users.train.row(users.middle))
    return marked_map(
        f"item-map-{run.number + 1}-{number}",
        f"Items of {run.title}: {kind}",
        f"A user of middling activity, with {own.sum()} training items",
        users=users,
        items=items,
        own=own,
        vectors=table,
        user=users.vector if users.vector is not None and users.vector.shape == table.shape[1:] else None,
    )


def drawable(vectors: Table) -> bool:
    """Whether they are numbers, and not all the same."""
    return bool(np.isfinite(vectors).all() and np.ptp(vectors, axis=0).any())


def marked_map(
    name: str,
    title: str,
    about: str,
    *,
    users: Users,
    items: Ints,
    own: NDArray[np.bool_],
    vectors: Table,
    user: Table | None = None,
) -> Figure:
    """Vectors of items, those that are the user's `own` marked, and the user's; not all others are drawn."""
    mine, others = np.flatnonzero(own), spread(np.flatnonzero(~own), MOST)
    drawn = vectors[np.concatenate([others, mine])]
    found = project(drawn if user is None else np.vstack([drawn, user]))
    groups = (("other items", others, OTHERS, 0), ("the user's training items", mine, OWN, len(others)))
    rows: list[list[Cell]] = []
    clouds = []
    for group, places, colour, start in groups:
        if len(places):
            at = found.places[start : start + len(places)].astype(np.float64)
            xs, ys = at[:, 0].tolist(), at[:, 1].tolist()
            names = [users.data.title(int(items[place])) for place in places]
            clouds.append(Series(group, ys, xs, names=names, colour=colour, key=f"{name}-{colour}"))
            rows += [list(row) for row in zip([group] * len(xs), names, xs, ys, strict=True)]
    if user is not None:
        x, y = (float(place) for place in found.places[-1])
        clouds.append(
            Series("the user", [y], [x], names=["the user"], colour=USER, key=f"{name}-{USER}", ring=0)
        )
        rows.append(["the user", "", x, y])
    return Figure(
        name=name,
        title=title,
        caption=f"{about}, and {len(others)} of the other items; {found.words}.",
        chart=Chart("points", clouds, *found.axes),
        columns=("group", "item", "first", "second"),
        rows=rows,
    )
