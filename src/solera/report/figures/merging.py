"""Merging weights of the shared and personal tables: FedEM's ρ and its counterparts."""

from __future__ import annotations

from collections.abc import Sequence

from solera.report.chart import Figure
from solera.report.figures.matrix import first_and_last, heat_map, named
from solera.report.recorded import Recorded


def merging_weights(runs: Sequence[Recorded]) -> list[Figure]:
    """ρ of some users and items, in the first and in the last round that was recorded in full."""
    return [
        heat_map(
            f"merging-{run.number + 1}-{number}",
            f"Merging weights ρ of {run.title}, round {number}",
            "How much of the shared table a user's own takes over, item by item: 1 is all of it, 0 nothing. "
            "Some users by activity, some items by popularity, evenly spread.",
            arrays["merging/values"],
            rows=named(arrays["merging/users"]),
            columns=[_title(run, int(item)) for item in arrays["merging/items"]],
            axes=("items, the most popular first", "least active user on top"),
            value="ρ",
        )
        for run in runs
        for number, arrays in first_and_last(run, "merging")
    ]


def _title(run: Recorded, item: int) -> str:
    return run.users.data.title(item) if run.users else f"item {item}"
