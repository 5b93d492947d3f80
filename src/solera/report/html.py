"""Pieces of the page: names, numbers, tables, figures."""

from __future__ import annotations

import base64
import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from solera.report.chart import Cell, Figure
from solera.report.recorded import Recorded
from solera.report.svg import draw
from solera.runs.result import flat

LONG, FEW = 200, 20  # rows: of more than so many, only a few stand on the page


def named(title: str) -> str:
    """A run's title; a leaky one in red."""
    return f'<span class="leaky">{escape(title)}</span>' if title.endswith("(LEAKY)") else escape(title)


def number(value: float, digits: int = 4) -> str:
    """A number as people read it, with the whole of it for programs."""
    if not math.isfinite(value):
        return "–"
    shown = f"{value:,}" if isinstance(value, int) else f"{value:,.{digits}f}"
    if isinstance(value, float) and value and abs(value) < 0.5 * 10.0**-digits:
        shown = f"{value:.2e}"
    return f'<data value="{value!r}">{shown}</data>'


def size(count: float) -> str:
    """A number of bytes."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            break
        count /= 1000
    return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"


def cell(value: Any) -> str:
    """Whatever a record holds."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return number(value)
    return named(str(value))


def table(columns: Iterable[str], rows: Iterable[str]) -> str:
    """A table that scrolls in itself where the screen is narrow; `columns` and `rows` are HTML."""
    head = "".join(f'<th scope="col">{column}</th>' for column in columns)
    body = "".join(rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def row(first: str, rest: Iterable[str], *, kind: str = "") -> str:
    """A row: its name, and its cells as HTML."""
    cells = "".join(f"<td>{each}</td>" for each in rest)
    marked = f' class="{kind}"' if kind else ""
    return f'<tr{marked}><th scope="row">{first}</th>{cells}</tr>'


def comparison(runs: Sequence[Recorded], contents: Sequence[Mapping[str, Any]]) -> str:
    """What nested records say, a line for each entry; those in which the runs differ are marked."""
    found = [dict(flatten(content)) for content in contents]
    keys = list(dict.fromkeys(key for each in found for key in each))
    differ = {key for key in keys if len({repr(each.get(key)) for each in found}) > 1}
    rows = [
        row(
            escape(key),
            (_exact(each.get(key)) for each in found),
            kind="differs" if key in differ else "",
        )
        for key in sorted(keys, key=lambda key: key not in differ)
    ]
    return table(["", *(named(run.title) for run in runs)], rows)


def _exact(value: Any) -> str:
    return cell(value) if isinstance(value, bool) or not isinstance(value, int | float) else f"{value:g}"


def flatten(content: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """Nested entries under names joined with dots, lists as text."""
    for key, value in flat(content):
        yield key, (", ".join(map(str, value)) or "none") if isinstance(value, list | tuple) else value


def as_csv(figure: Figure) -> str:
    """A figure's data, in full precision."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(figure.columns)
    writer.writerows([_plain(value) for value in line] for line in figure.rows)
    return text.getvalue()


def _plain(value: Cell) -> Cell:
    return float(f"{value:.6g}") if isinstance(value, float) else value


def figure_html(figure: Figure) -> str:
    """A figure with its data beside it: as a table to open (of many rows, the first), and as a file."""
    link = base64.b64encode(as_csv(figure).encode()).decode()
    shown = figure.rows[:FEW] if len(figure.rows) > LONG else figure.rows
    rows = [row(cell(line[0]), (cell(_plain(value)) for value in line[1:])) for line in shown]
    if len(shown) < len(figure.rows):
        rows.append(row(f"… all {len(figure.rows)} rows are in the file below", ()))
    return (
        f'<figure id="{figure.name}"><h3>{_title(figure.title)}</h3>{draw(figure.chart, figure.title)}'
        f"<figcaption>{_title(figure.caption)}</figcaption>"
        f"<details><summary>Data</summary>{table(map(named, figure.columns), rows)}</details>"
        f'<a download="{figure.name}.csv" href="data:text/csv;base64,{link}">{figure.name}.csv</a></figure>'
    )


def _title(text: str) -> str:
    """Words that may name leaky runs."""
    return escape(text).replace("(LEAKY)", '<span class="leaky">(LEAKY)</span>')
