"""Item vectors in the plane of their two principal components, one user's own items marked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from solera.data.ragged import Ints
from solera.report.chart import Cell, Chart, Figure, Series
from solera.report.recorded import Recorded
from solera.report.tables import Table, personal_tables, shared_table

MOST = 400  # items drawn beside the user's own
OTHERS, OWN = 9, 1  # colours


def item_maps(runs: Sequence[Recorded]) -> list[Figure]:
    """For every run whose data is at hand: the table that a user of middling activity scores with."""
    return [figure for run in runs if (figure := _map(run)) is not None]


def principal_plane(table: Table) -> tuple[Table, float]:
    """Coordinates on the two directions of most variance, and the share of the variance they have."""
    centred = table - table.mean(0)
    values, directions = np.linalg.eigh(centred.T @ centred)
    return centred @ directions[:, :-3:-1], float(values[-2:].sum() / values.sum())


def _map(run: Recorded) -> Figure | None:
    if run.users is None:
        return None
    sizes = run.users.train.lengths
    user = int(np.argsort(sizes, kind="stable")[len(sizes) // 2])
    own_table = next(personal_tables(run, np.array([user])), None)
    table = own_table if own_table is not None else shared_table(run)
    if table is None or not np.ptp(table, axis=0).any():
        return None
    places, share = principal_plane(table)
    own = np.unique(run.users.train.row(user))
    rest = np.setdiff1d(np.arange(len(table)), own)
    rest = rest[np.linspace(0, len(rest) - 1, min(MOST, len(rest))).astype(np.int64)]
    groups = (("other items", rest, OTHERS), ("the user's training items", own, OWN))
    data = run.users.data
    rows: list[list[Cell]] = [
        [kind, data.title(int(item)), float(places[item, 0]), float(places[item, 1])]
        for kind, items, _ in groups
        for item in items
    ]
    whose = "the user's own" if own_table is not None else "the shared"
    return Figure(
        name=f"item-map-{run.number + 1}",
        title=f"Items of {run.title} as a user sees them",
        caption=f"{whose.capitalize()} item table on its two principal components, which have {share:.0%} "
        f"of the variance; a user of middling activity, with {len(own)} training items; "
        f"{len(rest)} of the other items.",
        chart=Chart(
            "points",
            [_cloud(run, kind, places, items, colour) for kind, items, colour in groups],
            "first component",
            "second component",
        ),
        columns=("group", "item", "first", "second"),
        rows=rows,
    )


def _cloud(run: Recorded, kind: str, places: Table, items: Ints, colour: int) -> Series:
    assert run.users is not None
    return Series(
        kind,
        [float(value) for value in places[items, 1]],
        [float(value) for value in places[items, 0]],
        names=[run.users.data.title(int(item)) for item in items],
        colour=colour,
        key=f"map{run.number}-{colour}",
    )
