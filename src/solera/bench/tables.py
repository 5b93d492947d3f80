"""Tables made from records."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from solera.bench.forms import NONE, Cell, Table
from solera.bench.records import Failure, History, Record, UserGroup
from solera.bench.statistics import Interval, Spread, interval, spread
from solera.core.arrays import Floats
from solera.core.errors import RunError
from solera.evaluate.beyond import NAMES, K
from solera.runs.result import Tested

NOT_RUN, FAILED = "not run", "failed"
RANKINGS = {"full": "full ranking", "sampled99": "99 negatives"}
METRICS = {"hr@10": "HR@10", "ndcg@10": "NDCG@10"}
HISTORIES: dict[History, str] = {"train": "train", "validation": "train + validation"}
KNOWN = (
    "train, train + validation: full ranking of test items by a model that knows a user's training items "
    "alone, and by one that also knows the validation item."
)
BEYOND = tuple(f"{name}@{K}" for name in NAMES)
LEAKY = "LEAKY: under this protocol the held-out items can be told from the training negatives."


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
    def at_home(self) -> bool:
        """Whether it goes by the name of a preset, which is at home on one data set."""
        return self.label == self.records[0].preset

    def spread(self, ranking: str, metric: str) -> Spread:
        """A test figure over the seeds."""
        return spread([getattr(record.result.test, ranking)[metric] for record in self.records])

    def known(self, history: History, metric: str) -> Spread | str:
        """A full-ranking test figure of models that know these items of a user, over the seeds."""
        found = [record.test(history) for record in self.records]
        each = [rankings.full[metric] for rankings in found if rankings]
        return spread(each) if len(each) == len(found) else NOT_RUN

    @property
    def tested(self) -> list[Tested]:
        """The test figures of every seed: of models that know the validation item, where there are such."""
        return [each.test("validation") or each.test("train") or each.result.test for each in self.records]

    @property
    def ndcg(self) -> float:
        """Mean full-ranking NDCG@10 with the validation item, if known, by which rows are ordered."""
        return float(self.per_user.mean())

    @property
    def per_user(self) -> Floats:
        """Full-ranking NDCG@10 of every user, the mean of its seeds."""
        mean: Floats = np.mean([record.ndcg for record in self.records], axis=0)
        return mean


@dataclass(frozen=True)
class Block:
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

    @property
    def best_central(self) -> Row | None:
        """The best centralized baseline, for comparison."""
        return next((row for row in self.rows if row.central), None)

    def difference(self, row: Row) -> Interval | str:
        """NDCG@10 minus that of the best centralized baseline, paired over users."""
        best = self.best_central
        if best is None:
            return NOT_RUN
        return "best centralized" if row is best else interval(row.per_user - best.per_user)


def blocks(records: Sequence[Record], failures: Sequence[Failure] = ()) -> list[Block]:
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
            Block(dataset, protocol, leaky, rows, _missing(dataset, protocol, labels, records, failures))
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


def make_tables(all_blocks: Sequence[Block]) -> Iterator[Table]:
    """Make all tables."""
    for block in all_blocks:
        yield main_table(block)
        for ranking in RANKINGS:
            yield activity_table(block, ranking)
        yield warm_table(block)
        yield beyond_table(block)
    for protocol in dict.fromkeys(block.protocol for block in all_blocks):
        same = [block for block in all_blocks if block.protocol == protocol]
        if len(same) > 1 and any(not row.at_home for block in same for row in block.rows):
            histories: Sequence[History] = ["validation"] if same[0].leaky else list(HISTORIES)
            yield from (overview_table(same, history) for history in histories)


def main_table(block: Block) -> Table:
    """All labels, best first. An honest table has full-ranking figures of both histories."""
    rankings = list(RANKINGS) if block.leaky else ["sampled99"]
    figures = [(ranking, metric) for ranking in rankings for metric in METRICS]
    histories = [(history, metric) for history in HISTORIES for metric in METRICS if not block.leaky]
    head = (
        "method",
        *(f"{METRICS[metric]}, {HISTORIES[history]}" for history, metric in histories),
        *(f"{METRICS[metric]}, {RANKINGS[ranking]}" for ranking, metric in figures),
        "seeds",
        "NDCG@10 − best centralized [95 %]",
        "MB up",
        "MB down",
        "s a round",
    )
    rows: list[tuple[Cell, ...]] = []
    for row in block.rows:
        moved = [each.bytes_until_selected for each in row.records if each.bytes_until_selected]
        seconds = [
            each.result.seconds_per_round for each in row.records if each.result.seconds_per_round is not None
        ]
        rows.append(
            (
                _named(row),
                *(row.known(history, metric) for history, metric in histories),
                *(row.spread(ranking, metric) for ranking, metric in figures),
                len(row.records),
                block.difference(row),
                statistics.fmean(each.up / 1e6 for each in moved) if moved else NONE,
                statistics.fmean(each.down / 1e6 for each in moved) if moved else NONE,
                statistics.median(seconds) if seconds else NONE,
            )
        )
    many = len(histories) + len(figures)
    rows += [(label, *[why] * many, 0, why, why, why, why) for label, why in block.missing.items()]
    note = (
        "Mean ± standard deviation over seeds; paired bootstrap over users of the difference in full-ranking "
        "NDCG@10 (seeds averaged first); MB up and down: sent and received by an average client until the "
        "selected round."
    )
    if histories:
        note += f" {KNOWN} Rows are ordered and compared by the latter; where it was not run, by the former."
    return Table(block.name, block.title, head, rows, _note(block, note))


def warm_table(block: Block) -> Table:
    """All labels, on all test items and on those with a training row, in full ranking."""
    rows: list[tuple[Cell, ...]] = []
    for row in block.rows:
        cold = [each.cold for each in row.tested if each.cold is not None]
        warm = [each.warm for each in row.tested if each.warm]
        complete = len(warm) == len(row.tested)
        rows.append(
            (
                _named(row),
                *(spread([each.full[metric] for each in row.tested]) for metric in METRICS),
                *(spread([each[metric] for each in warm]) if complete else NOT_RUN for metric in METRICS),
                f"{statistics.fmean(cold):.1%}" if cold else NOT_RUN,
            )
        )
    names = METRICS.values()
    head = ("method", *(f"{name}, all" for name in names), *(f"{name}, warm" for name in names), "cold items")
    note = (
        "Full ranking; mean ± standard deviation over seeds. Warm: test items that occur in training. Cold: "
        "share of those that do not, which no model here can know; they are rivals of the warm ones."
    )
    title = f"{block.title}: warm and cold test items"
    return Table(f"{block.name}--warm", title, head, rows, _note(block, note))


def beyond_table(block: Block) -> Table:
    """All labels, by what they recommend to all users together."""
    rows: list[tuple[Cell, ...]] = []
    for row in block.rows:
        found = [each.beyond for each in row.tested if each.beyond]
        complete = len(found) == len(row.tested)
        each = (spread([one[name] for one in found]) if complete else NOT_RUN for name in BEYOND)
        rows.append((_named(row), *each))
    note = (
        "Lists of the ten best items of every user. Coverage: share of the catalogue in any list. Gini: 0 "
        "if all items are recommended equally often. Popularity: mean share of users who have a recommended "
        "item in training. Novelty: the mean of -log2 of that share, in bits. Diversity: mean of 1 - cosine "
        "of the training users of two items in a list."
    )
    title = f"{block.title}: beyond accuracy"
    return Table(f"{block.name}--beyond", title, ("method", *BEYOND), rows, _note(block, note))


def activity_table(block: Block, ranking: str) -> Table:
    """All labels, by how many training items users have."""
    groups = block.rows[0].records[0].by_activity
    rows: list[tuple[Cell, ...]] = []
    for row in block.rows:
        cells = []
        for place in range(len(groups)):
            means = [getattr(record.by_activity[place], ranking) for record in row.records]
            cells += [spread([mean[metric] for mean in means]) for metric in METRICS]
        rows.append((_named(row), *cells))
    rows += [(label, *[why] * (len(groups) * len(METRICS))) for label, why in block.missing.items()]
    head = (
        f"{name}, {_range(group)} items, {group.users} users" for group in groups for name in METRICS.values()
    )
    short = {"full": "full", "sampled99": "sampled"}[ranking]
    title = f"{block.title}: by user activity, {RANKINGS[ranking]}"
    note = "Users in quarters by their number of training items; mean ± standard deviation over seeds."
    return Table(f"{block.name}--activity-{short}", title, ("method", *head), rows, _note(block, note))


def _range(group: UserGroup) -> str:
    return f"{group.least}–{group.most}" if group.least < group.most else str(group.least)


def overview_table(same_protocol: Sequence[Block], history: History = "validation") -> Table:
    """All labels on all data sets, by their mean place; but for presets, which are at home on one.

    Under an honest protocol, figures are of models that know these items of a user.
    """
    first = same_protocol[0]
    found: dict[str, dict[str, Cell]] = {}
    places: dict[str, list[float]] = {}
    for block in same_protocol:
        for place, row in enumerate(row for row in block.rows if not row.at_home):
            figure = row.spread("full", "ndcg@10") if first.leaky else row.known(history, "ndcg@10")
            found.setdefault(_named(row), {})[block.dataset] = figure
            places.setdefault(_named(row), []).append(place / len(block.rows))
    for block in same_protocol:
        for label, why in block.missing.items():
            found.get(label, {})[block.dataset] = why
    rows: list[tuple[Cell, ...]] = [
        (label, *(cells.get(block.dataset, NOT_RUN) for block in same_protocol))
        for label, cells in sorted(
            found.items(), key=lambda each: (statistics.fmean(places[each[0]]), each[0])
        )
    ]
    known = " · LEAKY" if first.leaky else f", {HISTORIES[history]}"
    name = f"overview--{first.protocol}--{'leaky' if first.leaky else history}"
    note = _note(first, "Mean ± standard deviation over seeds.")
    head = ("method", *(block.dataset for block in same_protocol))
    return Table(name, f"Full-ranking NDCG@10, protocol {first.protocol}{known}", head, rows, note)


def _named(row: Row) -> str:
    return f"{row.label} (centralized)" if row.central else row.label


def _note(block: Block, note: str) -> str:
    return f"{note} Made by `solera bench tables`." + (f" {LEAKY}" if block.leaky else "")
