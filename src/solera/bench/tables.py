"""Tables made from records."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from solera.bench.blocks import HISTORIES, NOT_RUN, Block
from solera.bench.comparisons import comparison_tables
from solera.bench.cost_tables import cost_table
from solera.bench.forms import Cell, Table
from solera.bench.records import History, UserGroup
from solera.bench.statistics import spread
from solera.evaluate.beyond import NAMES, K

RANKINGS = {"full": "full ranking", "sampled99": "99 negatives"}
METRICS = {"hr@10": "HR@10", "ndcg@10": "NDCG@10"}
KNOWN = (
    "train, train + validation: full ranking of test items by a model that knows a user's training items "
    "alone, and by one that also knows the validation item."
)
BEYOND = tuple(f"{name}@{K}" for name in NAMES)


def make_tables(all_blocks: Sequence[Block]) -> Iterator[Table]:
    """Make all tables."""
    for block in all_blocks:
        yield main_table(block)
        yield from comparison_tables(block)
        if any(not row.central for row in block.rows):
            yield cost_table(block)
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
    )
    rows: list[tuple[Cell, ...]] = [
        (
            row.name,
            *(row.known(history, metric) for history, metric in histories),
            *(row.spread(ranking, metric) for ranking, metric in figures),
            len(row.records),
        )
        for row in block.rows
    ]
    many = len(histories) + len(figures)
    rows += [(label, *[why] * many, 0) for label, why in block.missing.items()]
    note = "Mean ± standard deviation over seeds."
    if histories:
        note += f" {KNOWN} Rows are ordered by the latter; where it was not run, by the former."
    return Table(block.name, block.title, head, rows, block.note(note))


def warm_table(block: Block) -> Table:
    """All labels, on all test items and on those with a training row, in full ranking."""
    rows: list[tuple[Cell, ...]] = []
    for row in block.rows:
        cold = [each.cold for each in row.tested if each.cold is not None]
        warm = [each.warm for each in row.tested if each.warm]
        complete = len(warm) == len(row.tested)
        rows.append(
            (
                row.name,
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
    return Table(f"{block.name}--warm", title, head, rows, block.note(note))


def beyond_table(block: Block) -> Table:
    """All labels, by what they recommend to all users together."""
    rows: list[tuple[Cell, ...]] = []
    for row in block.rows:
        found = [each.beyond for each in row.tested if each.beyond]
        complete = len(found) == len(row.tested)
        each = (spread([one[name] for one in found]) if complete else NOT_RUN for name in BEYOND)
        rows.append((row.name, *each))
    note = (
        "Lists of the ten best items of every user. Coverage: share of the catalogue in any list. Gini: 0 "
        "if all items are recommended equally often. Popularity: mean share of users who have a recommended "
        "item in training. Novelty: the mean of -log2 of that share, in bits. Diversity: mean of 1 - cosine "
        "of the training users of two items in a list."
    )
    title = f"{block.title}: beyond accuracy"
    return Table(f"{block.name}--beyond", title, ("method", *BEYOND), rows, block.note(note))


def activity_table(block: Block, ranking: str) -> Table:
    """All labels, by how many training items users have."""
    groups = block.rows[0].records[0].by_activity
    rows: list[tuple[Cell, ...]] = []
    for row in block.rows:
        cells = []
        for place in range(len(groups)):
            means = [getattr(record.by_activity[place], ranking) for record in row.records]
            cells += [spread([mean[metric] for mean in means]) for metric in METRICS]
        rows.append((row.name, *cells))
    rows += [(label, *[why] * (len(groups) * len(METRICS))) for label, why in block.missing.items()]
    head = (
        f"{name}, {_range(group)} items, {group.users} users" for group in groups for name in METRICS.values()
    )
    short = {"full": "full", "sampled99": "sampled"}[ranking]
    title = f"{block.title}: by user activity, {RANKINGS[ranking]}"
    note = "Users in quarters by their number of training items; mean ± standard deviation over seeds."
    return Table(f"{block.name}--activity-{short}", title, ("method", *head), rows, block.note(note))


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
            found.setdefault(row.name, {})[block.dataset] = figure
            places.setdefault(row.name, []).append(place / len(block.rows))
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
    note = first.note("Mean ± standard deviation over seeds.")
    head = ("method", *(block.dataset for block in same_protocol))
    return Table(name, f"Full-ranking NDCG@10, protocol {first.protocol}{known}", head, rows, note)
