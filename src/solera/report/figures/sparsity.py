"""Sparsity of the shared item table, which FedRAP's penalty aims at."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from solera.report.chart import Chart, Figure, by_x, series_of
from solera.report.recorded import Recorded
from solera.report.tables import shared_table

SIZES = [float(10.0**power) for power in np.arange(-6, 0.01, 0.25)]


def sparsity(runs: Sequence[Recorded]) -> list[Figure]:
    """The share of a shared table's entries that are at most so large, next to its largest."""
    series, zeros = [], []
    for run in runs:
        table = shared_table(run)
        if table is not None:
            entries = np.sort(np.abs(table).ravel())
            below = np.searchsorted(entries, np.array(SIZES) * entries[-1], side="right") / len(entries)
            series.append(series_of(run, [float(share) for share in below], x=SIZES))
            zeros.append(f"{run.title} {np.mean(entries == 0):.1%}")
    if not series:
        return []
    return [
        Figure(
            name="sparsity",
            title="Sparsity of the shared item table",
            caption="Share of entries no larger than x times the largest, in absolute value. "
            f"Exactly zero: {', '.join(zeros)}.",
            chart=Chart("lines", series, "size / largest", "share of entries", log_x=True),
            columns=("size", *(each.label for each in series)),
            rows=by_x(series),
        )
    ]
