"""Boards: all records of a data set under a protocol, and which model is better than which."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np

from solera.core.errors import RunError
from solera.core.types import Floats
from solera.runs.result import LEAKY, TESTS, Ranking, Tested, TestName
from solera.study.records import Failure, Record
from solera.study.statistics import Interval, Paired, Spread, holm, paired, spread

NOT_RUN, FAILED = "not run", "failed"
Verdict = Literal["above", "level with", "below"]
VERDICTS: tuple[Verdict, ...] = ("above", "level with", "below")


@dataclass(frozen=True)
class Row:
    """All seeds of one label on one data set under one protocol."""

    label: str
    records: tuple[Record, ...]

    @property
    def central(self) -> bool:
        """Whether it is a centralized baseline."""
        return self.records[0].kind == "baseline"

    @property
    def name(self) -> str:
        """Its name in tables."""
        return f"{self.label} (centralized)" if self.central else self.label

    @property
    def at_home(self) -> bool:
        """Whether it goes by the name of a preset, which is at home on one data set."""
        return self.label == self.records[0].preset

    def spread(self, name: TestName, metric: str, ranking: Ranking = "full") -> Spread | str:
        """A figure of one of the tests over the seeds."""
        found = [record.result.tests.get(name) for record in self.records]
        each = [tested[ranking][metric] for tested in found if tested]
        return spread(each) if len(each) == len(found) else NOT_RUN

    @property
    def tested(self) -> list[Tested]:
        """The figures of every seed in `test`, or in `test_train` where there is no other."""
        return [each.result.main[1] for each in self.records]

    @property
    def ndcg(self) -> float:
        """Mean full-ranking NDCG@10 of these, by which rows are ordered."""
        return statistics.fmean(each.full["ndcg@10"] for each in self.tested)

    def per_user(self, name: TestName) -> Floats | None:
        """Full-ranking NDCG@10 of every user, the mean of its seeds; None if a seed was not tested so."""
        found = [record.ndcg(name) for record in self.records]
        each = [values for values in found if values is not None]
        if len(each) < len(found):
            return None
        mean: Floats = np.mean(each, axis=0)
        return mean


@dataclass(frozen=True)
class Board:
    """Everything on one data set under one protocol, best first, and what has no record there."""

    dataset: str
    protocol: str
    leaky: bool
    rows: list[Row]
    missing: dict[str, str]  # label: why

    @property
    def name(self) -> str:
        """Of its files."""
        return f"{self.dataset}--{self.protocol}" + ("--leaky" if self.leaky else "")

    @property
    def title(self) -> str:
        """Title, which marks leaky protocols."""
        return f"{self.dataset}, protocol {self.protocol}" + (" · LEAKY" if self.leaky else "")

    def note(self, text: str) -> str:
        """The text below one of its tables, which marks leaky protocols."""
        return f"{text} Made by `solera bench tables`." + (f" {LEAKY}" if self.leaky else "")


def boards(records: Sequence[Record], failures: Sequence[Failure] = ()) -> list[Board]:
    """Records by data set and protocol; seeds of a label that are of different settings are an error."""
    grouped: dict[tuple[str, str], dict[str, list[Record]]] = {}
    for record in sorted(
        records, key=lambda record: (record.dataset, record.result.leaky, record.protocol, record.seed)
    ):
        grouped.setdefault((record.dataset, record.protocol), {}).setdefault(record.label, []).append(record)
    made = []
    for (dataset, protocol), labels in grouped.items():
        rows = [Row(label, tuple(same)) for label, same in labels.items()]
        _check(rows)
        rows.sort(key=lambda row: (-row.ndcg, row.label))
        leaky = rows[0].records[0].result.leaky
        made.append(
            Board(dataset, protocol, leaky, rows, _missing(dataset, protocol, labels, records, failures))
        )
    return made


def _missing(
    dataset: str,
    protocol: str,
    there: dict[str, list[Record]],
    records: Sequence[Record],
    failures: Sequence[Failure],
) -> dict[str, str]:
    """Labels that others have under the same protocol. A preset's name belongs to one data set alone."""
    wanted = {
        record.label: NOT_RUN
        for record in records
        if record.protocol == protocol and record.label != record.preset
    }
    wanted |= {
        failure.label: FAILED
        for failure in failures
        if (failure.dataset, failure.protocol) == (dataset, protocol)
    }
    return {label: why for label, why in sorted(wanted.items()) if label not in there}


def _check(rows: Sequence[Row]) -> None:
    first, hint = rows[0].records[0], "run one of them again, or give it another label"
    for row in rows:
        one = row.records[0]
        for record in row.records:
            same_seed = record.model_copy(update={"config": record.config | {"seed": one.seed}})
            difference = same_seed.difference(one)
            if difference:
                raise RunError(f"{record.name} and {one.name} have different settings: {difference}", hint)
            if (record.users, record.counts) != (first.users, first.counts):
                raise RunError(f"{record.name} and {first.name} cover different users", hint)


@dataclass(frozen=True)
class Comparison:
    """One model against a centralized one in the same test."""

    test: TestName
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


def compare(board: Board) -> list[Comparison]:
    """All comparisons of a board, corrected together: federated with centralized, all with popularity."""
    pairs: list[tuple[TestName, Row, Row, Paired]] = []
    for name in TESTS:
        known = {row.label: row.per_user(name) for row in board.rows}
        central = [row for row in board.rows if row.central]
        for ours, theirs in product(board.rows, central):
            if ours is theirs or is_popularity(ours) or (ours.central and not is_popularity(theirs)):
                continue
            mine, other = known[ours.label], known[theirs.label]
            if mine is not None and other is not None and len(mine):
                pairs.append((name, ours, theirs, paired(mine, other)))
    intervals = holm([found for *_, found in pairs])
    return [
        Comparison(name, ours, theirs, interval)
        for (name, ours, theirs, _), interval in zip(pairs, intervals, strict=True)
    ]
