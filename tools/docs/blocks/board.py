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

from solera.runs.result import TestName
from solera.study.compare import VERDICTS, Board, Comparison, Row, boards, compare, is_popularity
from solera.study.records import Record, Store, slug
from solera.study.tables import comparison_tables, text
from solera.study.trials import Spent, Study, spent

AGAINST = ("popularity", "ease", "sasrec")
PROTOCOLS = ("strict", "global-time")
_HR, _NDCG = "hr@10", "ndcg@10"
_LOCAL = "local"  # no collaboration: the lower end of the gap
Place = tuple[str, str]  # data set, protocol


class Tuned(NamedTuple):
    """A data set under a protocol that every model has finished, with the searches behind it."""

    board: Board
    studies: dict[str, Study]

    @property
    def title(self) -> str:
        """As in a heading."""
        return f"{self.board.dataset}, {self.board.protocol}"


@dataclass(frozen=True)
class Boards:
    """All boards, and what the matrices ask for that no record answers."""

    found: Sequence[Tuned]
    missing: dict[Place, list[str]]  # labels that lack a seed
    hours: float = 0.0  # of all searches and runs that have a record, each on one thread

    @cached_property
    def compared(self) -> list[list[Comparison]]:
        """All comparisons, board by board."""
        return [compare(each.board) for each in self.found]


def read_boards(root: Path) -> Boards:
    """Those under `root`. A model is on a board when every seed of it has a record.

    A board without a federated method, or without popularity and EASE, is not shown.
    """
    records = root / "experiments" / "records"
    found = [each for each in Store(records / "board", Record).all() if each.protocol in PROTOCOLS]
    studies = Store(records / "board-tuning", Study).all()
    there = {record.name for record in found}
    missing: dict[Place, list[str]] = {}
    asked: list[Place] = []
    for matrix in sorted((root / "experiments" / "matrices").glob("board*.toml")):
        for place, label, names in _asked(tomllib.loads(matrix.read_text("utf-8"))):
            asked.append(place)
            if not there.issuperset(names):
                missing.setdefault(place, []).append(label)
    made = {(board.dataset, board.protocol): board for board in boards(found)}
    full = []
    for place in dict.fromkeys([*asked, *made]):  # in the order of the matrices
        if (board := made.get(place)) is None:
            continue
        lacks = missing.get(place, [])
        rows = [row for row in board.rows if row.label not in lacks]
        federated = any(not row.central for row in rows)
        if federated and {"popularity", "ease"} <= {row.label for row in rows}:
            here = {each.label: each for each in studies if each.dataset == board.dataset}
            full.append(Tuned(replace(board, rows=rows, missing={}), here))
    seconds = sum(each.seconds for each in found) + sum(spent(each).seconds for each in studies)
    return Boards(full, missing, seconds / 3600)


def _asked(matrix: dict[str, Any]) -> Iterator[tuple[Place, str, list[str]]]:
    """The models that a matrix asks for on a data set under a protocol, and the records of their seeds."""
    for each in [*matrix.get("tune", ()), *matrix.get("run", ())]:
        named = (*each.get("baselines", ()), *each.get("methods", ()))
        labels = [each.get("label") or each.get("labels", {}).get(name, name) for name in named]
        for dataset, protocol, label in product(each["datasets"], each.get("protocols", ["strict"]), labels):
            if protocol in PROTOCOLS:
                name = f"{dataset}/{slug(label)}--{protocol}"
                yield (dataset, protocol), label, [f"{name}--s{seed}" for seed in each.get("seeds", [0])]


def board_tables(all_boards: Boards) -> str:
    """Every board: figures and what they cost, and what its comparisons say."""
    parts = []
    for each, compared in zip(all_boards.found, all_boards.compared, strict=True):
        parts += [f"### {each.title}", *_board(each.board, each.title, compared)]
    return "\n\n".join(parts) or NONE_YET


def _board(board: Board, title: str, compared: Sequence[Comparison]) -> Iterator[str]:
    rows = board.rows
    best = max(row.ndcg for row in rows if row.central)
    least = next((row.ndcg for row in rows if row.label == _LOCAL and row.ndcg < best), None)
    head = (
        *("model", "NDCG@10, test_train", "HR@10, test", "NDCG@10, test", "against popularity, EASE, SASRec"),
        *([] if least is None else ["of the gap"]),
        *("MB up", "MB down", "seeds"),
    )
    yield table(head, (_line(row, compared, least, best) for row in rows))
    lines = statements(board, list(compared), "test")
    yield "\n".join(f"- {line}" for line in lines)
    yield (
        f"{len(compared)} comparisons, corrected together; "
        f"[each with its interval](comparisons.md#{anchor(title)})."
    )


def _line(row: Row, compared: Sequence[Comparison], least: float | None, best: float) -> tuple[str, ...]:
    verdicts = {
        each.theirs.label: each.verdict.split()[0]
        for each in compared
        if each.ours is row and each.test == "test"
    }
    share = [] if least is None else [f"{(row.ndcg - least) / (best - least):.0%}"]
    return (
        f"{row.label}, centralized" if row.central else f"**{row.label}**",
        text(row.spread("test_train", _NDCG)),
        text(row.spread("test", _HR)),
        text(row.spread("test", _NDCG)),
        ", ".join(verdicts.get(label, "–") for label in AGAINST),
        *share,
        *_megabytes(row.records),
        str(len(row.records)),
    )


def _megabytes(records: Sequence[Record]) -> tuple[str, str]:
    """Of an average client until the selected round; nothing of a centralized model."""
    moved = [record.bytes_until_selected for record in records]
    if not all(moved):
        return "–", "–"
    each = [each for each in moved if each]
    return text(fmean(one.up for one in each) / 1e6), text(fmean(one.down for one in each) / 1e6)


def statements(board: Board, made: list[Comparison], name: TestName) -> list[str]:
    """Sentences that say what the comparisons of a board show in one of the tests."""
    here = [each for each in made if each.test == name]
    return [*_on_popularity(board, here), *_on_others(here), *_untested(board, name)]


def _on_popularity(board: Board, here: list[Comparison]) -> Iterator[str]:
    found = [each for each in here if is_popularity(each.theirs)]
    if not any(is_popularity(row) for row in board.rows):
        yield "Popularity: not run."
        return
    for verdict in VERDICTS:
        rows = [each.ours for each in found if each.verdict == verdict]
        federated = _names([row.label for row in rows if not row.central])
        central = _names([row.label for row in rows if row.central])
        text = f"{verdict.capitalize()} popularity: {federated or 'no federated method'}"
        yield f"{text}; centralized: {central}." if central else f"{text}."


def _on_others(here: list[Comparison]) -> Iterator[str]:
    """Federated methods against the other centralized models; those with equal verdicts in one sentence."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for ours in dict.fromkeys(each.ours.label for each in here if not each.ours.central):
        mine = [each for each in here if each.ours.label == ours and not is_popularity(each.theirs)]
        parts = tuple(
            f"{verdict} {_names([each.theirs.label for each in mine if each.verdict == verdict])}"
            for verdict in VERDICTS
            if any(each.verdict == verdict for each in mine)
        )
        if parts:
            alike.setdefault(parts, []).append(ours)
    for parts, methods in alike.items():
        yield f"{_names(methods)}: {'; '.join(parts)}."


def _untested(board: Board, name: TestName) -> Iterator[str]:
    without = [row.label for row in board.rows if row.per_user(name) is None]
    if without:
        yield f"Without {name}: {_names(without)}."


def _names(labels: list[str]) -> str:
    """Labels as a list in a sentence."""
    return ", ".join(f"`{label}`" for label in labels)


def searches(all_boards: Boards) -> str:
    """What every search cost and found."""
    parts = []
    for each in all_boards.found:
        if each.board.protocol != "strict":
            continue
        shown = {row.label for row in each.board.rows}
        rows = [
            _search(spent(study), study)
            for label, study in sorted(each.studies.items())
            if study.space and label in shown
        ]
        head = (
            *("model", "trials", "diverged", "passes", "seconds", "given", "chosen"),
            *("its round", "near an end of the range"),
        )
        parts.append(folded(each.board.dataset, table(head, rows)))
    total = f"All searches and final runs took {all_boards.hours:.1f} hours, each on one thread."
    return "\n\n".join([*parts, total]) if parts else NONE_YET


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


def pair_by_pair(all_boards: Boards) -> str:
    """Every comparison of every board, with its interval."""
    parts = []
    for each, compared in zip(all_boards.found, all_boards.compared, strict=True):
        parts += [f"## {each.title}", f"{len(compared)} comparisons."]
        for shown in comparison_tables(each.board):
            parts += [f"`{shown.title.rpartition(', ')[2]}`:", shown.grid()]
    return "\n\n".join(parts) or NONE_YET


def not_on_the_board(all_boards: Boards) -> str:
    """One list of what the matrices ask for and what has not been run to the end."""
    shown = {(each.board.dataset, each.board.protocol) for each in all_boards.found}
    lines = [
        f"- {dataset}, {protocol}: {_names(labels)}"
        f"{'' if (dataset, protocol) in shown else '; so this data set has no board'}"
        for (dataset, protocol), labels in all_boards.missing.items()
    ]
    return "\n".join(lines) or "Nothing: every run that the matrices ask for has a record."
