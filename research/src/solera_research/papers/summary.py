"""How many printed figures were reproduced, by paper and data set, and why others were not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple, get_args

from solera_research.papers import Paper
from solera_research.papers.cells import Cell, Result, Stored, cells

CLOSE = 0.03  # of a printed figure, in HR@10 and in NDCG@10
COMPARED = ("hr@10", "ndcg@10")
NOT_KNOWN = "reason not known"

Verdict = Literal["within", "outside", "not run", "cannot be run"]


class Line(NamedTuple):
    """The cells of one paper on one data set that have a printed HR@10 or NDCG@10."""

    paper: str
    dataset: str
    published: int
    run: int
    within: int
    outside: int
    not_run: int
    cannot_be_run: int  # no data set that is known, or no such method or run


class Outside(NamedTuple):
    """A cell that was run, further from the printed figures than `CLOSE`."""

    table: str
    row: str
    dataset: str
    difference: dict[str, float]
    why: str


def differences(result: Result) -> dict[str, float]:
    """Ours minus the printed figure, in HR@10 and NDCG@10 as far as both are there."""
    cell = result.cell
    named = zip(cell.table.metrics, result.ours(), cell.published, strict=True)
    return {
        metric: ours.mean - printed.value
        for metric, ours, printed in named
        if metric in COMPARED and ours and printed
    }


def verdict(result: Result) -> Verdict | None:
    """Whether all figures of a cell are close to the printed ones; None if it has none to compare with."""
    cell = result.cell
    printed = dict(zip(cell.table.metrics, cell.published, strict=True))
    if not any(printed.get(metric) for metric in COMPARED):
        return None
    found = differences(result)
    if not found:
        return "cannot be run" if cell.problem else "not run"
    return "within" if all(abs(each) <= CLOSE for each in found.values()) else "outside"


def why_outside(cell: Cell) -> str:
    """The recorded reason why a cell is not close: that of the table's row, or of the unchanged run."""
    name, run = cell.dataset.name, cell.table.run_of(cell.row)
    own = cell.table.why.get(cell.row, {}).get(name, "")
    if own or cell.preset != cell.paper.rows.preset(run, cell.dataset):
        return own
    return cell.paper.why.get(run, {}).get(name, "")


def all_results(papers: Iterable[Paper], stored: Stored) -> Iterator[Result]:
    """Every cell of every table, on data sets that this machine may not have."""
    for paper in papers:
        for table in paper.table:
            for cell in cells(paper, table, anywhere=True):
                yield Result(cell, stored.of(cell))


def summary(results: Iterable[Result]) -> tuple[list[Line], list[Outside]]:
    """Counts by paper and data set, and the cells that are not close."""
    verdicts: dict[tuple[str, str], list[Verdict]] = {}
    outside = []
    for result in results:
        found, cell = verdict(result), result.cell
        if found is None:
            continue
        verdicts.setdefault((cell.paper.name, cell.column), []).append(found)
        if found == "outside":
            table = f"{cell.paper.key}/{cell.table.id}"
            why = why_outside(cell) or NOT_KNOWN
            outside.append(Outside(table, cell.row, cell.dataset.name, differences(result), why))
    lines = [
        Line(
            *(paper, dataset, len(found), found.count("within") + found.count("outside")),
            *(found.count(each) for each in get_args(Verdict)),
        )
        for (paper, dataset), found in verdicts.items()
    ]
    return lines, outside


def total(lines: Iterable[Line]) -> Line:
    """All lines together."""
    counts = [sum(each) for each in zip(*(line[2:] for line in lines), strict=True)] or [0] * 6
    return Line("all", "", *counts)


def document(lines: list[Line], outside: list[Outside]) -> dict[str, Any]:
    """The summary as JSON types."""
    return {
        "close": CLOSE,
        "metrics": list(COMPARED),
        "leaky": True,
        "all": total(lines)._asdict(),
        "lines": [line._asdict() for line in lines],
        "outside": [each._asdict() for each in outside],
    }
