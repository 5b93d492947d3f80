"""What one client sent, as the server sees it: the rows, and how they changed, its own items marked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from solera.report.chart import Figure
from solera.report.figures.item_maps import drawable, marked_map
from solera.report.recorded import Recorded
from solera.report.users import Users
from solera.runs.recorded import Arrays


def uploads(runs: Sequence[Recorded]) -> Iterator[Figure]:
    """For every run that recorded one and whose data is at hand: the last upload."""
    return (
        figure
        for run in runs
        if run.users
        for number, arrays in _last(run)
        for figure in _figures(run, run.users, number, arrays)
    )


def _last(run: Recorded) -> list[tuple[int, Arrays]]:
    return [(number, arrays) for number, arrays in run.rounds.items() if _table(arrays)][-1:]


def _table(arrays: Arrays) -> str:
    """The name of the table whose rows were sent; empty if there is none to draw."""
    changes = (name for name in arrays if name.startswith("upload/") and name.endswith("/change"))
    return next((name.removesuffix("/change") for name in changes if _is_wide(arrays[name].shape)), "")


def _is_wide(shape: tuple[int, ...]) -> bool:
    return len(shape) == 2 and shape[1] > 1


def _figures(run: Recorded, users: Users, number: int, arrays: Arrays) -> Iterator[Figure]:
    change, before = (arrays[f"{_table(arrays)}/{part}"].astype(np.float64) for part in ("change", "before"))
    client, sent = int(arrays["upload/client"]), arrays["upload/rows"]
    own = np.isin(sent, users.train.row(client))
    about = (
        f"User number {client}, who sent the rows of {len(sent)} items in round {number}: {own.sum()} "
        "training items"
    )
    shown = (("rows", "the rows sent", before + change), ("change", "how the rows changed", change))
    return (
        marked_map(
            f"upload-{run.number + 1}-{name}",
            f"Upload of {run.title}: {title}",
            about,
            users=users,
            items=sent,
            own=own,
            vectors=values,
        )
        for name, title, values in shown
        if drawable(values)
    )
