"""The board: models with equal effort, without an empty cell."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from blocks.markdown import NONE_YET, anchor, folded, table

from solera.bench.blocks import Block, Row, blocks
from solera.bench.budgets import Spent, spent
from solera.bench.comparisons import Comparison, compare, comparison_tables, statements
from solera.bench.forms import text
from solera.bench.records import Record, read_all, slug
from solera.bench.studies import Study, read_studies

AGAINST = ("popularity", "ease", "sasrec")
PROTOCOLS = ("strict", "global-time")
_HR, _NDCG = "hr@10", "ndcg@10"
_LOCAL = "local"  # no collaboration: the lower end of the gap
Place = tuple[str, str]  # data set, protocol


class Board(NamedTuple):
    """A data set under a protocol that every model has finished, with the searches behind it."""

    block: Block
    studies: dict[str, Study]

    @property
    def title(self) -> str:
        """As in a heading."""
        return f"{self.block.dataset}, {self.block.protocol}"


@dataclass(frozen=True)
class Boards:
    """All boards, and what the matrices ask for that no record answers."""

    found: Sequence[Board]
    missing: dict[Place, list[str]]  # labels that lack a seed

    @cached_property
    def compared(self) -> list[list[Comparison]]:
        """All comparisons, board by board."""
        return [compare(board.block) for board in self.found]


def read_boards(root: Path) -> Boards:
    """Those under `root`. A model is on a board when every seed of it has a record."""
    records = root / "experiments" / "records"
    found = [each for each in read_all(records / "board") if each.protocol in PROTOCOLS]
    studies = read_studies(records / "board-tuning")
    there = {record.name for record in found}
    missing: dict[Place, list[str]] = {}
    for matrix in sorted((root / "experiments" / "matrices").glob("board*.toml")):
        for place, label, names in _asked(tomllib.loads(matrix.read_text("utf-8"))):
            if not there.issuperset(names):
                missing.setdefault(place, []).append(label)
    boards = []
    for block in blocks(found):
        lacks = missing.get((block.dataset, block.protocol), [])
        rows = [row for row in block.rows if row.label not in lacks]
        if {"popularity", "ease"} <= {row.label for row in rows}:
            here = {each.label: each for each in studies if each.dataset == block.dataset}
            boards.append(Board(replace(block, rows=rows, missing={}), here))
    return Boards(boards, missing)


def _asked(matrix: dict[str, Any]) -> Iterator[tuple[Place, str, list[str]]]:
    """The models that a matrix asks for on a data set under a protocol, and the records of their seeds."""
    for each in [*matrix.get("tune", ()), *matrix.get("run", ())]:
        named = (*each.get("baselines", ()), *each.get("methods", ()))
        labels = [each.get("label") or each.get("labels", {}).get(name, name) for name in named]
        for dataset, protocol, label in product(each["datasets"], each.get("protocols", ["strict"]), labels):
            if protocol in PROTOCOLS:
                file = f"{dataset}/{slug(label)}--{protocol}"
                yield (dataset, protocol), label, [f"{file}--s{seed}.json" for seed in each.get("seeds", [0])]


def board_tables(boards: Boards) -> str:
    """Every board: figures and what they cost, and what its comparisons say."""
    parts = []
    for board, compared in zip(boards.found, boards.compared, strict=True):
        parts += [f"### {board.title}", *_board(board, compared)]
    return "\n\n".join(parts) or NONE_YET


def _board(board: Board, compared: Sequence[Comparison]) -> Iterator[str]:
    rows = board.block.rows
    best = max(row.ndcg for row in rows if row.central)
    least = next((row.ndcg for row in rows if row.label == _LOCAL), None)
    head = (
        *("model", "NDCG@10, train", "HR@10", "NDCG@10", "against popularity, EASE, SASRec"),
        *("of the gap", "MB up", "MB down", "seeds"),
    )
    yield table(head, (_line(row, compared, least, best) for row in rows))
    lines = statements(board.block, list(compared), "validation")
    yield "\n".join(f"- {line}" for line in lines)
    yield (
        f"{len(compared)} comparisons, corrected together; "
        f"[each with its interval](comparisons.md#{anchor(board.title)})."
    )


def _line(row: Row, compared: Sequence[Comparison], least: float | None, best: float) -> tuple[str, ...]:
    verdicts = {
        each.theirs.label: each.verdict.split()[0]
        for each in compared
        if each.ours is row and each.history == "validation"
    }
    share = "" if least is None or best <= least else f"{(row.ndcg - least) / (best - least):.0%}"
    return (
        f"{row.label}, centralized" if row.central else f"**{row.label}**",
        text(row.known("train", _NDCG)),
        text(row.known("validation", _HR)),
        text(row.known("validation", _NDCG)),
        ", ".join(verdicts.get(label, "–") for label in AGAINST),
        share,
        *_megabytes(row.records),
        str(len(row.records)),
    )


def _megabytes(records: Sequence[Record]) -> tuple[str, str]:
    """Of an average client until the selected round; nothing of a centralized model."""
    moved = [record.bytes_until_selected for record in records]
    if not all(moved):
        return "", ""
    each = [each for each in moved if each]
    return text(fmean(one.up for one in each) / 1e6), text(fmean(one.down for one in each) / 1e6)


def searches(boards: Boards) -> str:
    """What every search cost and found."""
    parts = []
    for board in boards.found:
        if board.block.protocol != "strict":
            continue
        shown = {row.label for row in board.block.rows}
        rows = [
            _search(spent(study), study)
            for label, study in sorted(board.studies.items())
            if study.space and label in shown
        ]
        head = (
            *("model", "trials", "diverged", "passes", "seconds", "given", "chosen"),
            *("its round", "near an end of the range"),
        )
        parts.append(folded(board.block.dataset, table(head, rows)))
    return "\n\n".join(parts) or NONE_YET


def _search(cost: Spent, study: Study) -> tuple[str, ...]:
    winner, ends = study.best, ", ".join(f"{name} {value:.4g}" for name, value in cost.near_end.items())
    selected = str(1 + max(range(len(winner.curve)), key=lambda n: winner.curve[n])) if winner.curve else ""
    return (
        cost.label,
        str(cost.trials - cost.failed),
        str(cost.failed),
        f"{cost.passes:.0f}",
        f"{cost.seconds:.0f}",
        text(cost.given) if cost.given else "",
        text(cost.ndcg) if cost.ndcg else "",
        selected,
        ends or "none",
    )


def pair_by_pair(boards: Boards) -> str:
    """Every comparison of every board, with its interval."""
    parts = []
    for board, compared in zip(boards.found, boards.compared, strict=True):
        parts += [f"## {board.title}", f"{len(compared)} comparisons."]
        for each in comparison_tables(board.block):
            parts += [f"{each.title.rpartition(', ')[2]}:".capitalize(), each.grid()]
    return "\n\n".join(parts) or NONE_YET


def not_on_the_board(boards: Boards) -> str:
    """One list of what the matrices ask for and what has not been run to the end."""
    lines = [
        f"- {dataset}, {protocol}: {', '.join(f'`{label}`' for label in labels)}"
        for (dataset, protocol), labels in boards.missing.items()
    ]
    return "\n".join(lines) or "Nothing: every run that the matrices ask for has a record."
