"""Mixing weights of personalized tables: FedEM's matrix W, and those of user graphs."""

from __future__ import annotations

from collections.abc import Sequence

from solera.report.chart import Figure, fits_log
from solera.report.figures.matrix import first_and_last, heat_map, named
from solera.report.recorded import Recorded


def mixing_weights(runs: Sequence[Recorded]) -> list[Figure]:
    """W among some users, in the first and in the last round that was recorded in full."""
    return [
        heat_map(
            f"mixing-{run.number + 1}-{number}",
            f"Aggregation matrix W of {run.title}, round {number}",
            "How much of a user's next shared table comes from which user. Only some users, evenly spread by "
            "activity: a row over all users sums to one. What has no colour is nothing, or next to it.",
            weights := arrays["mixing/values"],
            rows=named(arrays["mixing/users"]),
            columns=named(arrays["mixing/users"], "from "),
            axes=("", "least active user on top"),
            value="weight",
            log=fits_log([float(weight) for weight in weights.ravel() if weight > 0]),
        )
        for run in runs
        for number, arrays in first_and_last(run, "mixing")
    ]
