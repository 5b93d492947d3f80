"""Content of a page as data: cells, tables, sections. Templates render it as HTML."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from solera.report.chart import Figure, as_csv, plain
from solera.report.recorded import Recorded
from solera.report.svg import draw
from solera.runs.result import flat

LONG, FEW = 200, 20  # rows: of more than so many, only a few stand on the page


@dataclass(frozen=True)
class Text:
    """Words or a number. `value` is the whole of the number, for programs; leaky words are red."""

    words: str
    value: float | None = None
    below: Text | None = None  # in small letters, on a line of its own
    leaky: bool = False


@dataclass(frozen=True)
class Row:
    """One line of a table."""

    name: Text
    cells: Sequence[Text]
    differs: bool = False


@dataclass(frozen=True)
class RowGroup:
    """Lines of a table, below what they have in common."""

    rows: Sequence[Row]
    title: Text | None = None
    note: str = ""


@dataclass(frozen=True)
class Table:
    """A table; with `switch`, an element's name, it can be narrowed down to what differs."""

    columns: Sequence[Text]
    groups: Sequence[RowGroup]
    title: str = ""
    about: str = ""
    switch: str = ""

    @property
    def has_differences(self) -> bool:
        """Whether some of its lines differ between runs."""
        return any(row.differs for group in self.groups for row in group.rows)


@dataclass(frozen=True)
class Drawn:
    """A figure as the page shows it."""

    name: str
    title: str
    caption: str
    chart: str  # SVG
    data: Table
    file: str  # all of its data, in base64


@dataclass(frozen=True)
class Section:
    """A part of the page. One with neither tables nor figures is left out."""

    name: str
    title: str
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    missing: Mapping[str, Sequence[Text]] = field(default_factory=dict)  # which runs, by why

    @property
    def grids(self) -> list[list[Drawn]]:
        """The figures; leaky ones begin a line of their own."""
        parts: tuple[list[Drawn], list[Drawn]] = ([], [])
        for figure in self.figures:
            parts[figure.name.endswith("-leaky")].append(_drawn(figure))
        return [some for some in parts if some]


def named(title: str) -> Text:
    """A run's title; a leaky one in red."""
    return Text(title, leaky=title.endswith("(LEAKY)"))


def number(value: float, digits: int = 4, below: Text | None = None, *, leaky: bool = False) -> Text:
    """Format a number for people."""
    if not math.isfinite(value):
        return Text("–", None, below, leaky)
    shown = f"{value:,}" if isinstance(value, int) else f"{value:,.{digits}f}"
    if isinstance(value, float) and value and abs(value) < 0.5 * 10.0**-digits:
        shown = f"{value:.2e}"
    return Text(shown, value, below, leaky)


def size(count: float) -> Text:
    """A number of bytes."""
    shown = count
    for unit in ("B", "kB", "MB", "GB"):
        if shown < 1000 or unit == "GB":
            break
        shown /= 1000
    return Text(f"{shown:,.0f} {unit}" if unit == "B" else f"{shown:,.1f} {unit}", count)


def cell(value: Any) -> Text:
    """Format any value of a record."""
    if value is None:
        return Text("–")
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    if isinstance(value, int | float):
        return number(value)
    return named(str(value))


def comparison(runs: Sequence[Recorded], contents: Sequence[Mapping[str, Any]], switch: str = "") -> Table:
    """What nested records say, a line for each entry; those in which the runs differ come first."""
    found = [dict(flatten(content)) for content in contents]
    keys = list(dict.fromkeys(key for each in found for key in each))
    differ = {key for key in keys if len({repr(each.get(key)) for each in found}) > 1}
    rows = [
        Row(Text(key), [_exact(each.get(key)) for each in found], differs=key in differ)
        for key in sorted(keys, key=lambda key: key not in differ)
    ]
    return Table([Text(""), *(named(run.title) for run in runs)], [RowGroup(rows)], switch=switch)


def _exact(value: Any) -> Text:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return cell(value)
    return Text(f"{value:g}")


def flatten(content: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """Nested entries under names joined with dots, lists as text."""
    for key, value in flat(content):
        yield key, (", ".join(map(str, value)) or "none") if isinstance(value, list | tuple) else value


def _drawn(figure: Figure) -> Drawn:
    """With its data beside it: as a table to open (of many rows, the first), and as a file."""
    shown = figure.rows[:FEW] if len(figure.rows) > LONG else figure.rows
    rows = [Row(cell(line[0]), [cell(plain(value)) for value in line[1:]]) for line in shown]
    if len(shown) < len(figure.rows):
        rows.append(Row(Text(f"… all {len(figure.rows)} rows are in the file below"), ()))
    return Drawn(
        figure.name,
        figure.title,
        figure.caption,
        draw(figure.chart, figure.title),
        Table([named(column) for column in figure.columns], [RowGroup(rows)]),
        base64.b64encode(as_csv(figure).encode()).decode(),
    )
