"""Closed forms and transformers beside published figures, from records and experiments/published.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import NamedTuple

from blocks.markdown import NONE_YET, PAIR, table
from blocks.settings import METRICS

from solera.study.compare import HISTORIES, NOT_RUN, Row, boards, compare
from solera.study.records import History, Record
from solera.study.tables import comparison_tables, cost_table, main_table, text

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


def beside_published(records: Sequence[Record], others: Sequence[Published], known: str) -> str:
    """HR@10 / NDCG@10 of every model by data set: federated, then centralized, then published."""
    history = next(history for history, words in HISTORIES.items() if words == known)
    found = {
        board.dataset: {row.label: row for row in board.rows}
        for board in boards(records)
        if board.protocol == "strict"
    }
    shown = [name for name in DATASETS if name in found]
    if not shown:
        return NONE_YET
    labels = {label: row.central for name in shown for label, row in found[name].items()}
    ours = [
        (
            f"{label}, centralized" if central else f"**{label}**",
            *(_cell(found[name].get(label), history) for name in shown),
        )
        for label, central in sorted(labels.items(), key=lambda each: (each[1], each[0]))
    ]
    theirs = [
        (f"*{each.model}* ({each.source})", *(_pair(each.figures.get(name)) for name in shown))
        for each in others
        if any(name in each.figures for name in shown)
    ]
    return table((PAIR, *shown), [*ours, *(theirs if history == "validation" else ())])


def transformer_boards(records: Sequence[Record]) -> str:
    """Every data set: figures, what a client pays, and every comparison with a centralized model."""
    parts = []
    for board in boards(records):
        parts += [f"### {board.dataset}", main_table(replace(board, missing={})).grid()]
        parts += ["What a client pays:", cost_table(board).grid()]
        for each in comparison_tables(board):
            parts += [f"Paired differences in NDCG@10, {each.title.rpartition(', ')[2]}:", each.grid()]
    return "\n\n".join(parts) or NONE_YET


def cost_of_federation(records: Sequence[Record]) -> str:
    """Differences in NDCG@10 between federated models and the same models, centralized."""
    made = {board.dataset: compare(board) for board in boards(records) if board.protocol == "strict"}
    rows = []
    for name, (ours, theirs) in product(DATASETS, TWINS.items()):
        pairs = [p for p in made.get(name, ()) if (p.ours.label, p.theirs.label) == (ours, theirs)]
        if pairs:
            by_history = {pair.history: text(pair.interval) for pair in pairs}
            rows.append((name, ours, theirs, *(by_history.get(history, NOT_RUN) for history in HISTORIES)))
    return table(("data set", "federated", "centralized", *HISTORIES.values()), rows) if rows else NONE_YET


def _cell(row: Row | None, history: History) -> str:
    figures = [row.known(history, metric) for metric in METRICS.values()] if row else []
    return NOT_RUN if NOT_RUN in figures or not figures else " / ".join(map(text, figures))


def _pair(figures: tuple[float, float] | None) -> str:
    return f"{figures[0]:.4f} / {figures[1]:.4f}" if figures else ""
