"""Papers' tables beside Solera's figures, as rows of text and as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from solera.study.statistics import Spread
from solera_research.papers import Paper, PaperTable, Published
from solera_research.papers.cells import Cell, Result, Stored, counted

NAMES = {"hr": "HR", "ndcg": "NDCG"}
NONE = "–"


class Grid(NamedTuple):
    """A part of a table, usually that of one data set."""

    title: str
    head: tuple[str, ...]
    rows: list[tuple[str, ...]]


class Counts(NamedTuple):
    """Cells of a table: how many there are, have printed figures, can be run here, and have a record."""

    cells: int
    published: int
    runnable: int
    recorded: int


def count(results: Sequence[Result]) -> Counts:
    """Count the cells of a table."""
    return Counts(
        cells=len(results),
        published=sum(any(result.cell.published) for result in results),
        runnable=sum(result.cell.problem is None for result in results),
        recorded=sum(bool(result.records) for result in results),
    )


def results(asked: Sequence[Cell], stored: Stored) -> list[Result]:
    """Cells with their records."""
    return [Result(cell, stored.of(cell)) for cell in asked]


def run_grids(asked: Sequence[Result]) -> list[Grid]:
    """One grid for every data set: printed figures, ours, the difference, and the number of seeds."""
    made = []
    for column in dict.fromkeys(result.cell.column for result in asked):
        here = [result for result in asked if result.cell.column == column]
        table, dataset = here[0].cell.table, here[0].cell.dataset
        shown = " / ".join(map(metric_name, table.metrics))
        title = column + (f" ({dataset.name})" if dataset.name else "")
        head = (_row_head(table), f"published {shown}", "ours", "difference", "seeds")
        made.append(Grid(title, head, [_cells_of(result) for result in here]))
    return made


def _row_head(table: PaperTable) -> str:
    return {"noise": "noise strength"}.get(table.vary, table.vary) if table.vary else "row"


def _cells_of(result: Result) -> tuple[str, ...]:
    cell, metrics = result.cell, result.cell.table.metrics
    published = _joined(cell.published, metrics)
    if not result.records:
        return cell.row, published, result.why, "", ""
    ours = result.ours()
    pairs = zip(cell.published, ours, metrics, strict=True)
    return cell.row, published, _joined(ours, metrics), _differences(list(pairs)), str(len(result.records))


def _joined(figures: Sequence[Published | Spread | None], metrics: Sequence[str]) -> str:
    if not any(figures):
        return NONE
    return " / ".join(_text(one, metric) for one, metric in zip(figures, metrics, strict=True))


def _text(one: Published | Spread | None, metric: str) -> str:
    if one is None:
        return NONE
    value = number(one[0], metric)
    return value if one[1] is None else f"{value} ± {number(one[1], metric)}"


def _differences(pairs: list[tuple[Published | None, Spread | None, str]]) -> str:
    made = [
        NONE if printed is None or ours is None else number(ours.mean - printed.value, metric, signed=True)
        for printed, ours, metric in pairs
    ]
    return " / ".join(made) if set(made) != {NONE} else ""


def shown_differences(found: Mapping[str, float]) -> str:
    """Differences by metric, as text."""
    return ", ".join(
        f"{metric_name(metric)} {number(each, metric, signed=True)}" for metric, each in found.items()
    )


def number(value: float, metric: str, *, signed: bool = False) -> str:
    """A figure as its metric is written."""
    sign = "+" if signed else ""
    if "@" in metric or metric == "learning_rate":
        return f"{value:{sign}.4f}" if "@" in metric else f"{value:{sign}g}"
    if metric in ("client MiB", "server MiB", "seconds a round"):
        return f"{value:{sign}.4f}"
    return f"{value:{sign},.0f}"


def metric_name(metric: str) -> str:
    """A metric as tables call it."""
    name, at, k = metric.partition("@")
    return f"{NAMES.get(name, name)}{at}{k}" if at else metric.replace("_", " ")


def data_grid(paper: Paper, table: PaperTable, data_dir: Path | None, *, known: bool = False) -> Grid:
    """Printed numbers of data sets and ours; with `known` only those that need no data."""
    head = ("data set", *(f"{name}, {who}" for name in table.metrics for who in ("published", "ours")))
    rows = []
    for row in table.rows:
        dataset, (printed,) = paper.dataset(row), table.published(row)
        bounds = table.ratings.get(row, {}).get(dataset.name)
        cells_: list[str] = []
        for metric, one in zip(table.metrics, printed, strict=True):
            found = counted(dataset, metric, bounds, data_dir, known=known)
            cells_ += [_text(one, metric), NONE if found is None else f"{found:,}"]
        rows.append((row, *cells_))
    return Grid("", head, rows)


def settings_grid(paper: Paper, table: PaperTable) -> Grid:
    """Printed settings, and those that are run here."""
    head = ("row", *(f"{column}, {who}" for column in table.columns for who in ("published", "ours")))
    rows = []
    for row in table.rows:
        cells_: list[str] = []
        for column, printed in zip(table.columns, table.published(row), strict=True):
            used = paper.rows.preset(table.run_of(row), paper.dataset(column)).options
            for metric, one in zip(table.metrics, printed, strict=True):
                cells_ += [_text(one, metric), str(used.get(metric, NONE))]
        rows.append((row, *cells_))
    return Grid("", head, rows)


def grids(paper: Paper, table: PaperTable, asked: Sequence[Result], data_dir: Path | None) -> list[Grid]:
    """All grids of a table, whatever it shows."""
    if table.kind == "data":
        return [data_grid(paper, table, data_dir)]
    if table.kind == "settings":
        return [settings_grid(paper, table)]
    return run_grids(asked)


def document(result: Result) -> dict[str, Any]:
    """A cell as JSON types."""
    cell = result.cell
    named = list(zip(cell.table.metrics, cell.published, result.ours(), strict=True))
    return {
        "row": cell.row,
        "column": cell.column,
        "dataset": cell.dataset.name or None,
        "state": result.state,
        "why": None if result.records else result.why,
        "preset": None if cell.preset is None or cell.table.vary else cell.preset.name,
        "published": {metric: one and {"mean": one.value, "sd": one.sd} for metric, one, _ in named},
        "ours": {metric: one and {"mean": one.mean, "sd": one.sd} for metric, _, one in named},
        "seeds": [record.seed for record in result.records],
        "leaky": True,
    }
