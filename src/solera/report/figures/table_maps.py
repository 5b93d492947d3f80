"""The numbers of item tables themselves, where a method has a shared and a personal one: sparse and dense."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from solera.report.chart import Figure
from solera.report.figures.item_maps import drawable
from solera.report.figures.matrix import heat_map
from solera.report.recorded import Recorded
from solera.report.users import Users
from solera.runs.recorded import spread
from solera.runs.tables import OWN, SHARED, TAILORED

ITEMS = 16


def table_maps(runs: Sequence[Recorded]) -> list[Figure]:
    """Some rows of the shared table and of that of a user of middling activity."""
    return [
        _map(run, run.users, number, kind)
        for run in runs
        if run.users
        for number, kind in enumerate(_both(run.users), start=1)
    ]


def _both(users: Users) -> list[str]:
    found = [kind for kind in (SHARED, TAILORED, OWN) if kind in users.tables]
    return found if len(found) > 1 and OWN in found and all(drawable(users.tables[k]) for k in found) else []


def _map(run: Recorded, users: Users, number: int, kind: str) -> Figure:
    table = users.tables[kind]
    items = spread(np.arange(len(table)), ITEMS)
    return heat_map(
        f"table-{run.number + 1}-{number}",
        f"Numbers of {run.title}: {kind}",
        f"{len(items)} items, evenly spread over the catalogue; the user is one of middling activity. "
        "Positive and negative numbers have colours of their own, zero has none.",
        table[items],
        rows=[users.data.title(int(item)) for item in items],
        columns=[f"dimension {place}" for place in range(1, table.shape[1] + 1)],
        axes=("", ""),
        value="number",
    )
