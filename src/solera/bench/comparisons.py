"""Which model is better than which on a board: every federated one against every centralized one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Literal

from solera.bench.blocks import HISTORIES, Block, Row
from solera.bench.forms import NONE, Cell, Table
from solera.bench.records import History
from solera.bench.statistics import Interval, Paired, holm, paired

Verdict = Literal["above", "level with", "below"]
VERDICTS: tuple[Verdict, ...] = ("above", "level with", "below")
HOW = (
    "Difference in full-ranking NDCG@10, row minus column, paired over users after the mean over seeds; "
    "normal intervals, with Holm's correction for all {count} comparisons of this data set and protocol, "
    "both histories together. They cover variation over users, not over seeds."
)


@dataclass(frozen=True)
class Comparison:
    """One model against a centralized one, both knowing the same items of a user."""

    history: History
    ours: Row
    theirs: Row
    interval: Interval

    @property
    def verdict(self) -> Verdict:
        """Level if the corrected interval contains zero."""
        if self.interval.low > 0:
            return "above"
        return "below" if self.interval.high < 0 else "level with"


def is_popularity(row: Row) -> bool:
    """Whether a row recommends what is most popular."""
    return row.records[0].result.method == "popularity"


def compare(block: Block) -> list[Comparison]:
    """All comparisons of a board, corrected together: federated with centralized, all with popularity."""
    pairs: list[tuple[History, Row, Row, Paired]] = []
    for history in HISTORIES:
        known = {row.label: row.per_user(history) for row in block.rows}
        central = [row for row in block.rows if row.central]
        for ours, theirs in product(block.rows, central):
            if ours is theirs or is_popularity(ours) or (ours.central and not is_popularity(theirs)):
                continue
            mine, other = known[ours.label], known[theirs.label]
            if mine is not None and other is not None and len(mine):
                pairs.append((history, ours, theirs, paired(mine, other)))
    intervals = holm([found for *_, found in pairs])
    return [
        Comparison(history, ours, theirs, interval)
        for (history, ours, theirs, _), interval in zip(pairs, intervals, strict=True)
    ]


def comparison_tables(block: Block) -> Iterator[Table]:
    """One table for each history: differences of all rows to all centralized models."""
    if block.leaky:
        return
    made = compare(block)
    for history in HISTORIES:
        here = {(each.ours.label, each.theirs.label): each for each in made if each.history == history}
        against = list(dict.fromkeys(theirs for _, theirs in here))
        rows: list[tuple[Cell, ...]] = []
        for ours in dict.fromkeys(each.ours.label for each in here.values()):
            found = (here.get((ours, theirs)) for theirs in against)
            rows.append((ours, *(each.interval if each else NONE for each in found)))
        if not rows:
            continue
        title = f"{block.title}: against centralized models, {HISTORIES[history]}"
        note = block.note(HOW.format(count=len(made)))
        yield Table(f"{block.name}--against-{history}", title, ("method", *against), rows, note)


def statements(block: Block, made: list[Comparison], history: History) -> list[str]:
    """Sentences that say what the comparisons of a board show for models with this history."""
    here = [each for each in made if each.history == history]
    return [*_on_popularity(block, here), *_on_others(here), *_untested(block, history)]


def _on_popularity(block: Block, here: list[Comparison]) -> Iterator[str]:
    found = [each for each in here if is_popularity(each.theirs)]
    if not any(is_popularity(row) for row in block.rows):
        yield "Popularity: not run."
        return
    for verdict in VERDICTS:
        rows = [each.ours for each in found if each.verdict == verdict]
        federated = names([row.label for row in rows if not row.central])
        central = names([row.label for row in rows if row.central])
        text = f"{verdict.capitalize()} popularity: {federated or 'no federated method'}"
        yield f"{text}; centralized: {central}." if central else f"{text}."


def _on_others(here: list[Comparison]) -> Iterator[str]:
    """Federated methods against the other centralized models; those with equal verdicts in one sentence."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for ours in dict.fromkeys(each.ours.label for each in here if not each.ours.central):
        mine = [each for each in here if each.ours.label == ours and not is_popularity(each.theirs)]
        parts = tuple(
            f"{verdict} {names([each.theirs.label for each in mine if each.verdict == verdict])}"
            for verdict in VERDICTS
            if any(each.verdict == verdict for each in mine)
        )
        if parts:
            alike.setdefault(parts, []).append(ours)
    for parts, methods in alike.items():
        yield f"{names(methods)}: {'; '.join(parts)}."


def _untested(block: Block, history: History) -> Iterator[str]:
    without = [row.label for row in block.rows if row.per_user(history) is None]
    if without:
        yield f"Not run with this history: {names(without)}."


def names(labels: list[str]) -> str:
    """Labels as a list in a sentence."""
    return ", ".join(f"`{label}`" for label in labels)
