"""A matrix as a heat map, for the figures that are one."""

from __future__ import annotations

from collections.abc import Sequence

from solera.core.arrays import Ints
from solera.report.chart import Chart, Figure, Series
from solera.report.recorded import Recorded
from solera.runs.recorded import Arrays
from solera.runs.tables import Table


def heat_map(
    name: str,
    title: str,
    caption: str,
    values: Table,
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    axes: tuple[str, str],
    value: str,
    log: bool = False,
) -> Figure:
    """A row of the matrix for each of `rows`, the first on top; `value` is what the numbers are."""
    series = [
        Series(row, [float(each) for each in line], key=f"{name}-{place}")
        for place, (row, line) in enumerate(zip(rows, values, strict=True))
    ]
    return Figure(
        name=name,
        title=title,
        caption=caption,
        chart=Chart("heat", series, *axes, categories=columns, log_y=log, value=value),
        columns=("", *columns),
        rows=[(each.label, *each.y) for each in series],
    )


def first_and_last(run: Recorded, what: str) -> list[tuple[int, Arrays]]:
    """The rounds of a run whose values of that kind are shown."""
    found = [
        (number, arrays)
        for number, arrays in run.rounds.items()
        if f"{what}/values" in arrays and arrays[f"{what}/values"].size
    ]
    return found[:1] + found[1:][-1:]


def named(users: Ints, before: str = "") -> list[str]:
    """Users by their numbers."""
    return [f"{before}user {user}" for user in users]
