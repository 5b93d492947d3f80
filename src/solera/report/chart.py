"""Figures: text, data, and a description of the chart, independent of how it is drawn."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from solera.report.recorded import Recorded
from solera.runs.result import Ranking

Cell = str | int | float | None
NICE = (1, 2, 2.5, 5, 10)
BASELINE_COLOUR = 9


@dataclass(frozen=True)
class Series:
    """Values under one name. Of bars, `y` has one value per category and `x` is empty."""

    label: str
    y: Sequence[float]
    x: Sequence[float] = ()
    bounds: Sequence[tuple[float, float]] | None = None  # of an interval around every y
    names: Sequence[str] | None = None  # of the points
    colour: int = 0
    key: str = ""  # what the legend switches: series of one run have one key in all figures
    leaky: bool = False
    ring: int | None = None  # the point to point out


@dataclass(frozen=True)
class Chart:
    """A chart: lines, bars or a scatter plot."""

    kind: Literal["lines", "bars", "points"]
    series: Sequence[Series]
    x_label: str
    y_label: str
    categories: Sequence[str] = ()
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True)
class Figure:
    """A chart with its words and its data, which is what can be read off it, as a table."""

    name: str  # of its files
    title: str
    caption: str
    chart: Chart
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]


def as_csv(figure: Figure) -> str:
    """A figure's data, with six digits."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(figure.columns)
    writer.writerows([plain(value) for value in line] for line in figure.rows)
    return text.getvalue()


def plain(value: Cell) -> Cell:
    """Format a value for a figure's data."""
    return float(f"{value:.6g}") if isinstance(value, float) else value


def series_of(
    run: Recorded,
    y: Sequence[float],
    *,
    x: Sequence[float] = (),
    bounds: Sequence[tuple[float, float]] | None = None,
    names: Sequence[str] | None = None,
    ring: int | None = None,
) -> Series:
    """Series of one run, with its colour and name; hidden together with the run."""
    return Series(
        run.title,
        y,
        x,
        bounds,
        names,
        colour=run.number,
        key=f"run{run.number}",
        leaky=run.leaky,
        ring=ring,
    )


def popularity_lines(
    runs: Sequence[Recorded], ranking: Ranking, metric: str, series: Sequence[Series]
) -> list[Series]:
    """What popularity reaches on validation, as a line across `series`: one per data set and protocol."""
    xs = sorted({x for each in series for x in each.x})
    found = {
        (run.dataset, run.config.protocol): (run.users.popularity[ranking][metric], run.leaky)
        for run in reversed(runs)
        if run.users
    }
    ends = sorted({xs[0], xs[-1]}) if xs else []
    return [
        Series(
            " · ".join(["popularity", *(place if len(found) > 1 else ())]),
            [value] * len(ends),
            ends,
            colour=BASELINE_COLOUR,
            key="popularity",
            leaky=leaky,
        )
        for place, (value, leaky) in sorted(found.items())
        if ends
    ]


def by_x(series: Sequence[Series]) -> list[list[Cell]]:
    """Rows of a table: each x once, and what every series has there."""
    found = [dict(zip(each.x, each.y, strict=True)) for each in series]
    return [[x, *(values.get(x) for values in found)] for x in sorted({x for each in found for x in each})]


def extent(values: Sequence[float], *, log: bool = False, zero: bool = False) -> tuple[float, float]:
    """Bounds of an axis: a little more than the values need, never nothing."""
    low, high = min(values), max(values)
    if log:
        low, high = low / 1.15, high * 1.15
        return (low, high) if high / low > 2 else (low / 1.5, high * 1.5)
    low = min(low, 0.0) if zero else low
    room = (high - low) * 0.05 or abs(high) * 0.1 or 1.0
    return (low if zero and low == 0 else low - room), high + room


def ticks(low: float, high: float, *, log: bool = False, most: int = 6) -> list[float]:
    """Round numbers between two bounds."""
    if log:
        decades = range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
        step = max(1, math.ceil(len(decades) / most))
        return [10.0**decade for decade in decades if decade % step == 0] or [low, high]
    rough = (high - low) / (most - 1)
    unit = 10.0 ** math.floor(math.log10(rough))
    step_size = next(nice * unit for nice in NICE if nice * unit >= rough * 0.999)
    first = math.ceil(low / step_size - 1e-9)
    return [number * step_size for number in range(first, math.floor(high / step_size + 1e-9) + 1)]


def short(value: float) -> str:
    """Format a number for an axis or a tooltip."""
    if value == 0:
        return "0"
    if abs(value) >= 1e6 or abs(value) < 1e-3:
        mantissa, power = f"{value:.2e}".split("e")
        return f"{float(mantissa):g}e{int(power)}"
    return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def joined_names(names: Iterable[str]) -> str:
    """Names in one attribute of a page, as its script takes them apart."""
    return escape("|".join(name.replace("|", "/") for name in names))


def joined_values(values: Iterable[float]) -> str:
    """The same of numbers."""
    return " ".join(short(value).replace(",", "") for value in values)


def fits_log(values: Sequence[float]) -> bool:
    """Whether values are so far apart that only a logarithmic axis shows them all."""
    return bool(values) and min(values) > 0 and max(values) / min(values) > 50
