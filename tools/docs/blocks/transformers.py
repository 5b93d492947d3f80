"""Closed forms and transformers beside published figures, from records and experiments/published.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from blocks.markdown import NONE_YET, PAIR, table
from blocks.settings import METRICS

from solera.runs.result import TESTS, TestName
from solera.study.compare import NOT_RUN, Row, boards, compare
from solera.study.records import Record
from solera.study.tables import text

HEAD = (PAIR, *TESTS, "MB up / down")
DATASETS = ("ml-1m", "ml-1m-5core", "beauty", "toys", "sports")
TWINS = {  # what is the same but for federation
    "fedslist, attributes & fedsasrec": "slist, attributes & sasrec",
    "fedslist & fedsasrec": "slist & sasrec",
    "fedsasrec": "sasrec",
}


class Published(NamedTuple):
    """What others publish for one model: HR@10 and NDCG@10 by data set."""

    model: str
    source: str
    figures: dict[str, tuple[float, float]]


def read_published(path: Path) -> list[Published]:
    """All entries of the file, if there is one."""
    if not path.exists():
        return []
    return [
        Published(
            each.pop("model"), each.pop("source"), {name: (of["hr"], of["ndcg"]) for name, of in each.items()}
        )
        for each in tomllib.loads(path.read_text("utf-8"))["figure"]
    ]


def transformer_boards(records: Sequence[Record], others: Sequence[Published]) -> str:
    """Every data set: models that read histories alone beside published ones, then those with attributes."""
    found = {board.dataset: board.rows for board in boards(records) if board.protocol == "strict"}
    parts = []
    for name in (name for name in DATASETS if name in found):
        theirs = [
            (f"*{each.model}* ({each.source})", "", _pair(each.figures[name]), "")
            for each in others
            if name in each.figures
        ]
        parts += [f"### {name}", table(HEAD, [*_lines(found[name], attributes=False), *theirs])]
        if with_attributes := _lines(found[name], attributes=True):
            parts += ["With categories and brands of items:", table(HEAD, with_attributes)]
    return "\n\n".join(parts) or NONE_YET


def _lines(rows: Sequence[Row], *, attributes: bool) -> list[tuple[str, ...]]:
    return [
        (
            f"{row.label}, centralized" if row.central else f"**{row.label}**",
            *(_tested(row, name) for name in TESTS),
            _bytes(row),
        )
        for row in rows
        if ("attributes" in row.label) == attributes
    ]


def _tested(row: Row, name: TestName) -> str:
    figures = [row.spread(name, metric) for metric in METRICS.values()]
    return "" if NOT_RUN in figures else " / ".join(map(text, figures))


def _bytes(row: Row) -> str:
    """Up and down of an average client until the selected round, in MB; nothing of a centralized model."""
    moved = [record.bytes_until_selected for record in row.records]
    if not all(moved):
        return ""
    each = [one for one in moved if one]
    return f"{fmean(one.up for one in each) / 1e6:.3g} / {fmean(one.down for one in each) / 1e6:.3g}"


def cost_of_federation(records: Sequence[Record]) -> str:
    """Differences in NDCG@10 between federated models and the same models, centralized."""
    made = {board.dataset: compare(board) for board in boards(records) if board.protocol == "strict"}
    rows = []
    for name, (ours, theirs) in product(DATASETS, TWINS.items()):
        pairs = [p for p in made.get(name, ()) if (p.ours.label, p.theirs.label) == (ours, theirs)]
        if pairs:
            by_test = {pair.test: text(pair.interval) for pair in pairs}
            rows.append((name, ours, theirs, *(by_test.get(test, "") for test in TESTS)))
    return table(("data set", "federated", "centralized", *TESTS), rows) if rows else NONE_YET


def _pair(figures: tuple[float, float]) -> str:
    return f"{figures[0]:.4f} / {figures[1]:.4f}"
