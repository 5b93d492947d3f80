"""How many printed figures were reproduced, and why others were not: by cell, and by unique run.

A run serves every cell with its settings, in several tables and papers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from solera_research.papers import Paper, Settings
from solera_research.papers.cells import Cell, Result, Stored, cells

CLOSE = 0.03  # of a printed figure, in HR@10 and in NDCG@10
COMPARED = ("hr@10", "ndcg@10")
NOT_KNOWN = "reason not known"

Verdict = Literal["within", "outside", "not run", "not attempted", "cannot be run"]
SETTINGS: dict[Settings, str] = {
    "given": "given by the paper or public code",
    "open": "partly open, one set tried",
    "chosen": "chosen or changed after test figures had been seen",
}


class Line(NamedTuple):
    """The cells of one paper on one data set that have a printed HR@10 or NDCG@10."""

    paper: str
    dataset: str
    published: int
    run: int
    within: int
    outside: int
    not_run: int  # with those not attempted
    cannot_be_run: int  # no data set that is known, or no such method or run


class Runs(NamedTuple):
    """Unique runs for all cells that have a printed HR@10 or NDCG@10, by where their settings come from."""

    settings: str
    run: int
    within: int  # in all cells that the run serves
    outside: int
    not_run: int
    not_attempted: int


class LeftOut(NamedTuple):
    """Cells of a paper of which no more runs are made."""

    paper: str
    what: str
    cells: int  # without a record
    why: str


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
    if not found and cell.problem:
        return "cannot be run"
    if not found:
        return "not attempted" if cell.not_attempted else "not run"
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
            paper,
            dataset,
            published=len(found),
            run=found.count("within") + found.count("outside"),
            within=found.count("within"),
            outside=found.count("outside"),
            not_run=found.count("not run") + found.count("not attempted"),
            cannot_be_run=found.count("cannot be run"),
        )
        for (paper, dataset), found in verdicts.items()
    ]
    return lines, outside


def unique_runs(results: Iterable[Result]) -> list[Runs]:
    """Counts of runs, each once. One that serves rows with different settings counts where they say least."""
    found: dict[str, list[tuple[Settings, Verdict]]] = {}
    for result in results:
        judged, cell = verdict(result), result.cell
        if judged is None or cell.config is None:
            continue
        run = cell.config.model_dump_json()
        found.setdefault(run, []).append((cell.paper.settings_of(cell.table.run_of(cell.row)), judged))
    kinds = list(SETTINGS)
    counts = Counter(
        (max((kind for kind, _ in each), key=kinds.index), _of_run([judged for _, judged in each]))
        for each in found.values()
    )
    return [
        Runs(
            SETTINGS[kind],
            run=counts[kind, "within"] + counts[kind, "outside"],
            within=counts[kind, "within"],
            outside=counts[kind, "outside"],
            not_run=counts[kind, "not run"],
            not_attempted=counts[kind, "not attempted"],
        )
        for kind in kinds
    ]


def _of_run(judged: list[Verdict]) -> Verdict:
    """Outside if any of its cells is; of a run without a record, not attempted if that is said of all."""
    order: tuple[Verdict, ...] = ("outside", "within", "not run", "not attempted")
    return next(each for each in order if each in judged)


def left_out(results: Sequence[Result]) -> list[LeftOut]:
    """What is not attempted, with the number of its cells that have no record."""
    missing = Counter(
        (each.cell.paper.key, each.cell.not_attempted) for each in results if verdict(each) == "not attempted"
    )
    papers = {each.cell.paper.key: each.cell.paper for each in results}
    return [
        LeftOut(paper.name, ", ".join((*each.tables, *each.rows)), missing[key, each.why], each.why)
        for key, paper in papers.items()
        for each in paper.not_attempted
    ]


def total(lines: Iterable[Line]) -> Line:
    """All lines together."""
    counts = [sum(each) for each in zip(*(line[2:] for line in lines), strict=True)] or [0] * 6
    return Line("all", "", *counts)


def document(results: Sequence[Result]) -> dict[str, Any]:
    """The summary as JSON types."""
    lines, outside = summary(results)
    return {
        "close": CLOSE,
        "metrics": list(COMPARED),
        "leaky": True,
        "all": total(lines)._asdict(),
        "runs": [each._asdict() for each in unique_runs(results)],
        "lines": [line._asdict() for line in lines],
        "outside": [each._asdict() for each in outside],
        "not_attempted": [each._asdict() for each in left_out(results)],
    }
