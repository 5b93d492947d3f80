"""Figures: text, data, and a chart, which is drawn as SVG.

A chart is readable without a script, and has its data for the script's hints.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal, NamedTuple

from solera.report.recorded import Recorded
from solera.runs.result import Ranking

Cell = str | int | float | None
NICE = (1, 2, 2.5, 5, 10)
_TICKS = 6  # at most
BASELINE_COLOUR = 9


@dataclass(frozen=True)
class Series:
    """Values under one name. Of bars, `y` has one value per category and `x` is empty."""

    label: str
    y: Sequence[float]
    x: Sequence[float] = ()
    bounds: Sequence[tuple[float, float]] | None = None  # of an interval around every y
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
    ring: int | None = None,
) -> Series:
    """Series of one run, with its colour and name; hidden together with the run."""
    return Series(
        run.title,
        y,
        x,
        bounds,
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


def ticks(low: float, high: float, *, log: bool = False) -> list[float]:
    """Round numbers between two bounds."""
    if log:
        decades = range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
        step = max(1, math.ceil(len(decades) / _TICKS))
        return [10.0**decade for decade in decades if decade % step == 0] or [low, high]
    rough = (high - low) / (_TICKS - 1)
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


def joined_values(values: Iterable[float]) -> str:
    """Numbers in one attribute of a page, as its script takes them apart."""
    return " ".join(short(value).replace(",", "") for value in values)


def fits_log(values: Sequence[float]) -> bool:
    """Whether values are so far apart that only a logarithmic axis shows them all."""
    return bool(values) and min(values) > 0 and max(values) / min(values) > 50


WIDTH, PLOT_HEIGHT = 400, 220
LEFT, RIGHT, TOP, BELOW = 64, 12, 10, 40
LINE, LETTER, KEY = 19, 7.2, 22  # of the legend: height of a line, width of a letter and of a key
COLOURS = 10
# What the page's stylesheet says of charts, for a file that stands alone.
ALONE = """
text{font:13px system-ui,sans-serif;fill:#1d2430}.grid{stroke:#dde1e7;fill:none}.leaky{fill:#c2182b}
.line{fill:none;stroke-width:2}.dots{fill:none;stroke-width:5;stroke-linecap:round;opacity:.55}
.whisker{stroke:#1d2430;stroke-width:1.3;fill:none}.ring{fill:none;stroke-width:2}
.line.leak,rect.leak{stroke-dasharray:5 4}rect.leak{fill-opacity:.4;stroke:#c2182b}
"""
PALETTE = (
    *("#0072b2", "#d55e00", "#009e73", "#aa3377", "#b97f00"),
    *("#3d4654", "#3fa7dc", "#8c564b", "#5b4bb5", "#7d8794"),
)


class Scale(NamedTuple):
    """Maps values to positions."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Position of a value."""
        low, high, at = self.low, self.high, value
        if self.log:
            low, high, at = (math.log10(each) for each in (low, high, at))
        return self.start + (at - low) / (high - low) * (self.end - self.start)


def draw(chart: Chart, label: str, *, alone: bool = False) -> str:
    """The chart as an SVG element; `alone` as a file of its own, with its colours."""
    legend, rows = _legend(chart.series)
    height = TOP + PLOT_HEIGHT + BELOW + LINE * rows + 6
    style = ""
    if alone:
        painted = "".join(
            f".line.c{n},.dots.c{n},.ring.c{n}{{stroke:{c}}}rect.c{n}{{fill:{c}}}"
            for n, c in enumerate(PALETTE)
        )
        style = f'<style>{ALONE}{painted}</style><rect width="100%" height="100%" fill="#fff"/>'
    space = ' xmlns="http://www.w3.org/2000/svg"' if alone else ""
    return (
        f'<svg{space} class="chart" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(label)}" '
        f'data-xl="{escape(chart.x_label)}" data-yl="{escape(chart.y_label)}">'
        f"{style}{_inside(chart)}{legend}</svg>"
    )


def _inside(chart: Chart) -> str:
    names = _names(chart)
    x, y = _scales(chart)
    return "".join([*_axes(chart, x, y), *names, *(_series(chart, each, x, y) for each in chart.series)])


def _scales(chart: Chart) -> tuple[Scale, Scale]:
    bars = chart.kind == "bars"
    ys = [y for each in chart.series for y in each.y]
    ys += [y for each in chart.series for pair in each.bounds or () for y in pair]
    y = Scale(
        *extent(ys, log=chart.log_y, zero=bars and not chart.log_y), TOP + PLOT_HEIGHT, TOP, chart.log_y
    )
    if bars:
        return Scale(0, len(chart.categories), LEFT, WIDTH - RIGHT), y
    xs = [x for each in chart.series for x in each.x]
    return Scale(*extent(xs, log=chart.log_x), LEFT, WIDTH - RIGHT, chart.log_x), y


def _axes(chart: Chart, x: Scale, y: Scale) -> Iterable[str]:
    floor = TOP + PLOT_HEIGHT
    for value in ticks(y.low, y.high, log=y.log):
        at = y(value)
        yield f'<path class="grid" d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}"/>'
        yield f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{short(value)}</text>'
    if chart.kind == "bars":
        for number, name in enumerate(chart.categories):
            at = x(number + 0.5)
            yield f'<text x="{at:.1f}" y="{floor + 16}" text-anchor="middle">{escape(name)}</text>'
    else:
        for value in ticks(x.low, x.high, log=x.log):
            yield f'<path class="grid" d="M{x(value):.1f} {floor}v4"/>'
            yield f'<text x="{x(value):.1f}" y="{floor + 17}" text-anchor="middle">{short(value)}</text>'


def _names(chart: Chart) -> Iterable[str]:
    """Labels of the axes."""
    middle, floor = (LEFT + WIDTH - RIGHT) / 2, TOP + PLOT_HEIGHT
    yield f'<text x="{middle}" y="{floor + 34}" text-anchor="middle">{escape(chart.x_label)}</text>'
    yield (
        f'<text transform="translate(12 {TOP + PLOT_HEIGHT / 2}) rotate(-90)" text-anchor="middle">'
        f"{escape(chart.y_label)}</text>"
    )


def _series(chart: Chart, each: Series, x: Scale, y: Scale) -> str:
    classes = f"c{each.colour % COLOURS}{' leak' if each.leaky else ''}"
    whole = "".join(
        _bars(chart, each, x, y, classes) if chart.kind == "bars" else _marks(chart, each, x, y, classes)
    )
    return f'<g data-key="{escape(each.key)}" data-label="{escape(each.label)}">{whole}</g>'


def _marks(chart: Chart, each: Series, x: Scale, y: Scale, classes: str) -> Iterable[str]:
    places = [(x(one), y(other)) for one, other in zip(each.x, each.y, strict=True)]
    if chart.kind == "points" or len(places) == 1:
        path, shape = "".join(f"M{a:.1f},{b:.1f}h0" for a, b in places), "dots"
    else:
        path, shape = "M" + "L".join(f"{a:.1f},{b:.1f}" for a, b in places), "line"
    xs, ys = joined_values(each.x), joined_values(each.y)
    yield f'<path class="{shape} {classes}" d="{path}" data-x="{xs}" data-y="{ys}"/>'
    if each.ring is not None:
        a, b = places[each.ring]
        yield f'<circle class="ring {classes}" cx="{a:.1f}" cy="{b:.1f}" r="5"/>'


def _bars(chart: Chart, each: Series, x: Scale, y: Scale, classes: str) -> Iterable[str]:
    width = 1 / (len(chart.series) + 0.8)
    place = [one.label for one in chart.series].index(each.label)
    floor = y.start if y.log else y(max(0.0, y.low))
    for number, value in enumerate(each.y):
        left, right = (x(number + (place + 0.4 + side) * width) for side in (0.04, 0.96))
        top = y(value)
        yield (
            f'<rect class="{classes}" x="{left:.1f}" y="{min(top, floor):.1f}" width="{right - left:.1f}" '
            f'height="{abs(floor - top):.1f}" data-x="{escape(chart.categories[number])}" '
            f'data-y="{short(value)}"/>'
        )
        if each.bounds:
            low, high = each.bounds[number]
            middle = (left + right) / 2
            yield f'<path class="whisker" d="M{middle:.1f} {y(low):.1f}V{y(high):.1f}"/>'


def _legend(series: Sequence[Series]) -> tuple[str, int]:
    """Keys in lines below the axis, and how many lines it takes."""
    parts, left, row = [], 8.0, 0
    for each in series:
        width = KEY + LETTER * len(each.label) + 14
        if left > 8 and left + width > WIDTH:
            left, row = 8.0, row + 1
        at = TOP + PLOT_HEIGHT + BELOW + LINE * row + 12
        classes = f"c{each.colour % COLOURS}{' leak' if each.leaky else ''}"
        parts.append(
            f'<g class="key" data-for="{escape(each.key)}" tabindex="0" role="button" aria-pressed="true">'
            f'<rect class="{classes}" x="{left:.0f}" y="{at - 10}" width="14" height="11"/>'
            f'<text class="{"leaky" if each.leaky else "label"}" x="{left + KEY - 3:.0f}" y="{at}">'
            f"{escape(each.label)}</text></g>"
        )
        left += width
    return "".join(parts), row + 1
