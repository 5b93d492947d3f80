"""Heat maps: how deep every value of a matrix is coloured, and the matrix as SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from html import escape

from solera.report.chart import Chart, joined_names, joined_values, short

POSITIVE, NEGATIVE = 0, 1  # colours
STEPS = 8  # of the scale below the map
CRISP = 'shape-rendering="crispEdges"'  # no seams between cells
ROW, COLUMN = 9, 13  # letters of the longest names at the edges
Ends = tuple[float, float]


def depths(chart: Chart) -> tuple[Callable[[float], float], Ends]:
    """From a value to a depth of colour, 0 to 1, and the values at the ends of the scale.

    Where some values are negative, zero has no colour and signs have colours of their own; else the least
    value has none. On a logarithmic scale, zeros have none.
    """
    values = [y for each in chart.series for y in each.y]
    low, high = min(values), max(values)
    if low < 0:
        most = max(-low, high)
        return (lambda value: abs(value) / most), (-most, most)
    if chart.log_y:
        low = min(value for value in values if value > 0)
        return (lambda value: _share(*map(math.log, (max(value, low), low, high)))), (low, high)
    return (lambda value: _share(value, low, high)), (low, high)


def _share(value: float, low: float, high: float) -> float:
    return (value - low) / (high - low) if high > low else 1.0


def sign(value: float) -> int:
    """The colour of a value."""
    return NEGATIVE if value < 0 else POSITIVE


def heat(chart: Chart, box: tuple[float, float, float, float], left: float, line: int) -> Iterable[str]:
    """Cells in the box (left, top, width, height), names at its edges, and a scale at height `line`."""
    x, y, width, height = box
    across, down = width / len(chart.categories), height / len(chart.series)
    depth, ends = depths(chart)
    cells: dict[tuple[int, str], str] = {}  # of one colour and depth, in units of a cell
    for row, each in enumerate(chart.series):
        for column, value in enumerate(each.y):
            paint = sign(value), f"{depth(value):.2f}"
            cells[paint] = cells.get(paint, "") + f"M{column} {row}h1v1h-1z"
    paths = "".join(
        f'<path class="c{colour}" fill-opacity="{deep}" d="{shape}"/>'
        for (colour, deep), shape in cells.items()
    )
    to_box = f"translate({x} {y}) scale({across:.4f} {down:.4f})"
    yield f'<g class="cells" transform="{to_box}" {CRISP}>{paths}</g>'
    columns = joined_names(chart.categories)
    yield f'<g class="rows" data-box="{x} {y} {across:.4f} {down:.4f}" data-columns="{columns}">'
    for each in chart.series:
        about = f'data-key="{escape(each.key)}" data-label="{escape(each.label)}"'
        yield f'<g {about} data-y="{joined_values(each.y)}"/>'
    yield "</g>"
    yield f'<path class="grid" d="M{x} {y}h{width}v{height}h-{width}z"/>'
    for row in _some(len(chart.series)):
        at, name = y + down * (row + 0.5) + 4, escape(_cut(chart.series[row].label, ROW))
        yield f'<text x="{x - 6}" y="{at:.1f}" text-anchor="end">{name}</text>'
    for column in _some(len(chart.categories)):
        at = x + across * (column + 0.5)
        anchor = "start" if column == 0 else "end" if column == len(chart.categories) - 1 else "middle"
        place = x if column == 0 else x + width if anchor == "end" else at
        name = escape(_cut(chart.categories[column], COLUMN))
        yield f'<text x="{place:.1f}" y="{y + height + 16}" text-anchor="{anchor}">{name}</text>'
    yield from _scale(ends, chart.log_y, left, line)


def _cut(name: str, most: int) -> str:
    return name if len(name) <= most else f"{name[: most - 1].rstrip()}…"


def _some(count: int) -> list[int]:
    """The first, one in the middle and the last."""
    return sorted({0, count // 2, count - 1}) if count > 3 else list(range(count))


def _scale(ends: Ends, log: bool, left: float, at: int) -> Iterable[str]:
    """Colour scale of the values."""
    low, high = ends
    yield f'<text x="{left:.0f}" y="{at}">{short(low)}</text>'
    start, each = left + 70, 14
    for step in range(STEPS):
        share = step / (STEPS - 1)
        value = low + share * (high - low)
        depth = abs(value) / high if low < 0 else share
        yield (
            f'<rect class="c{sign(value)}" x="{start + each * step:.0f}" y="{at - 11}" width="{each}" '
            f'height="12" fill-opacity="{depth:.2f}"/>'
        )
    words = f"{short(high)}, logarithmic" if log else short(high)
    yield f'<text x="{start + each * STEPS + 8:.0f}" y="{at}">{words}</text>'
