"""Tables made from records, each as Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from solera.core.errors import SoleraError
from solera.evaluate.beyond import NAMES, K
from solera.methods import find
from solera.runs.plan import client_bytes, rows_of_upload
from solera.runs.result import RANKINGS, TESTS, Ranking, TestName
from solera.study.compare import NOT_RUN, Board, Row, compare
from solera.study.records import Record, UserGroup
from solera.study.statistics import Interval, Spread, spread

NONE = "–"
SIGNS = {"±": r"$\pm$", "−": "$-$", "·": r"$\cdot$", "–": "--", "^": r"\^{}", "~": r"\~{}"}  # in LaTeX

Cell = str | int | float | Spread | Interval
NAMED = dict(zip(RANKINGS, ("full ranking", "99 negatives"), strict=True))
METRICS = {"hr@10": "HR@10", "ndcg@10": "NDCG@10"}
KNOWN = (
    "test, test_train: by a model that knows a user's training items and validation item, and by one that "
    "knows the training items alone."
)
BEYOND = tuple(f"{name}@{K}" for name in NAMES)
HOW = (
    "Difference in full-ranking NDCG@10, row minus column, paired over users after the mean over seeds; "
    "normal intervals, with Holm's correction for all {count} comparisons of this data set and protocol, "
    "both tests together. They cover variation over users, not over seeds."
)
COSTS = (
    "Of an average client; means over seeds. Bytes: in a round, and in all rounds until the selected one. "
    "Client seconds: one client's training in a round, on one thread; round seconds: all clients and the "
    "server. Memory is computed, not measured: the model, and for what is trained a copy, a gradient and the "
    "optimizer's means; without samples, activations and the program."
)
COST_COLUMNS = (
    *("method", "selected round", "kB up a round", "kB down a round", "MB up", "MB down"),
    *("client s a round", "round s", "client memory, MB"),
)


@dataclass(frozen=True)
class Table:
    """A title, a head and rows; the same cells in three forms."""

    name: str  # of its files
    title: str
    head: tuple[str, ...]
    rows: list[tuple[Cell, ...]]
    note: str

    def markdown(self) -> str:
        """With title and note."""
        return f"# {self.title}\n\n{self.grid()}\n\n{self.note}\n"

    def grid(self) -> str:
        """In Markdown, head and rows alone."""
        rows = [self.head, *(tuple(map(text, row)) for row in self.rows)]
        first, *others = ("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)
        return "\n".join((first, "|---" * len(self.head) + "|", *others))

    def csv(self) -> str:
        """A column for every number: a spread takes two, an interval three."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        parts = [max((_parts(row[column]) for row in self.rows), key=len) for column in range(len(self.head))]
        named = zip(self.head, parts, strict=True)
        writer.writerow(f"{title} {part}".rstrip() for title, names in named for part in names)
        for row in self.rows:
            filled = (_values(cell, len(names)) for cell, names in zip(row, parts, strict=True))
            writer.writerow(value for values in filled for value in values)
        return file.getvalue()

    def latex(self) -> str:
        """A `table` for the package booktabs."""
        rows = [self.head, *(tuple(map(text, row)) for row in self.rows)]
        first, *others = (" & ".join(map(_latex, row)) + r" \\" for row in rows)
        return "\n".join(
            (
                r"\begin{table}",
                rf"\caption{{{_latex(self.title)}. {_latex(self.note)}}}",
                rf"\begin{{tabular}}{{l{'r' * (len(self.head) - 1)}}}",
                r"\toprule",
                first,
                r"\midrule",
                *others,
                r"\bottomrule",
                r"\end{tabular}",
                r"\end{table}",
                "",
            )
        )

    def write(self, folder: Path) -> list[Path]:
        """Write the Markdown, CSV and LaTeX files."""
        texts = {"md": self.markdown(), "csv": self.csv(), "tex": self.latex()}
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / f"{self.name}.{suffix}" for suffix in texts]
        for path, content in zip(paths, texts.values(), strict=True):
            path.write_text(content, encoding="utf-8")
        return paths


def text(cell: Cell) -> str:
    """A cell as it is shown."""
    match cell:
        case Spread(mean, None):
            return f"{mean:.4f}"
        case Spread(mean, sd):
            return f"{mean:.4f} ± {sd:.4f}"
        case Interval(mean, low, high):
            return f"{mean:+.4f} [{low:+.4f}, {high:+.4f}]"
        case float():
            return f"{cell:.3g}" if cell < 100 else f"{cell:.0f}"
        case _:
            return str(cell)


def _parts(cell: Cell) -> tuple[str, ...]:
    return {Spread: ("mean", "sd"), Interval: ("", "low", "high")}.get(type(cell), ("",))


def _values(cell: Cell, width: int) -> list[str]:
    values = cell if isinstance(cell, tuple) else (cell,)
    texts = ["" if value in (None, NONE) else str(value) for value in values]
    return texts + [""] * (width - len(texts))


def _latex(text: str) -> str:
    escaped = re.sub(r"([&%$#_{}])", r"\\\1", text.replace("\\", "/").replace("`", ""))
    for sign, written in SIGNS.items():
        escaped = escaped.replace(sign, written)
    return re.sub(r"(?<![\w.])-(?=\d)", "$-$", escaped)


def make_tables(all_boards: Sequence[Board]) -> Iterator[Table]:
    """Make all tables."""
    for board in all_boards:
        yield main_table(board)
        yield from comparison_tables(board)
        if any(not row.central for row in board.rows):
            yield cost_table(board)
        for ranking in RANKINGS:
            yield activity_table(board, ranking)
        yield warm_table(board)
        yield beyond_table(board)
    for protocol in dict.fromkeys(board.protocol for board in all_boards):
        same = [board for board in all_boards if board.protocol == protocol]
        if len(same) > 1 and any(not row.at_home for board in same for row in board.rows):
            names: Sequence[TestName] = ["test_train"] if same[0].leaky else TESTS
            yield from (overview_table(same, name) for name in names)


def main_table(board: Board) -> Table:
    """All labels, best first. A leaky protocol has one test alone."""
    names: Sequence[TestName] = ["test_train"] if board.leaky else TESTS
    figures = [
        *((name, metric, ranking) for ranking in RANKINGS[:1] for name in names for metric in METRICS),
        *((names[-1], metric, ranking) for ranking in RANKINGS[1:] for metric in METRICS),
    ]
    head = (
        "method",
        *(f"{METRICS[metric]}, {NAMED[ranking]}, {name}" for name, metric, ranking in figures),
        "seeds",
    )
    rows: list[tuple[Cell, ...]] = [
        (row.name, *(row.spread(*figure) for figure in figures), len(row.records)) for row in board.rows
    ]
    rows += [(label, *[why] * len(figures), 0) for label, why in board.missing.items()]
    note = (
        f"Mean ± standard deviation over seeds. {KNOWN} Rows are ordered by the former, "
        "or by the latter where that is all there is."
    )
    return Table(board.name, board.title, head, rows, board.note(note))


def warm_table(board: Board) -> Table:
    """All labels, on all test items and on those with a training row, in full ranking."""
    rows: list[tuple[Cell, ...]] = []
    for row in board.rows:
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
    title = f"{board.title}: warm and cold test items"
    return Table(f"{board.name}--warm", title, head, rows, board.note(note))


def beyond_table(board: Board) -> Table:
    """All labels, by what they recommend to all users together."""
    rows: list[tuple[Cell, ...]] = []
    for row in board.rows:
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
    title = f"{board.title}: beyond accuracy"
    return Table(f"{board.name}--beyond", title, ("method", *BEYOND), rows, board.note(note))


def activity_table(board: Board, ranking: Ranking) -> Table:
    """All labels, by how many training items users have."""
    groups = board.rows[0].records[0].by_activity
    rows: list[tuple[Cell, ...]] = []
    for row in board.rows:
        cells = []
        for place in range(len(groups)):
            means = [getattr(record.by_activity[place], ranking) for record in row.records]
            cells += [spread([mean[metric] for mean in means]) for metric in METRICS]
        rows.append((row.name, *cells))
    rows += [(label, *[why] * (len(groups) * len(METRICS))) for label, why in board.missing.items()]
    head = (
        f"{name}, {_range(group)} items, {group.users} users" for group in groups for name in METRICS.values()
    )
    short = "full" if ranking == "full" else "sampled"
    title = f"{board.title}: by user activity, {NAMED[ranking]}"
    note = "Users in quarters by their number of training items; mean ± standard deviation over seeds."
    return Table(f"{board.name}--activity-{short}", title, ("method", *head), rows, board.note(note))


def _range(group: UserGroup) -> str:
    return f"{group.least}–{group.most}" if group.least < group.most else str(group.least)


def overview_table(same_protocol: Sequence[Board], name: TestName) -> Table:
    """All labels on all data sets in one of the tests, by their mean place; but for presets."""
    first = same_protocol[0]
    found: dict[str, dict[str, Cell]] = {}
    places: dict[str, list[float]] = {}
    for board in same_protocol:
        for place, row in enumerate(row for row in board.rows if not row.at_home):
            found.setdefault(row.name, {})[board.dataset] = row.spread(name, "ndcg@10")
            places.setdefault(row.name, []).append(place / len(board.rows))
    for board in same_protocol:
        for label, why in board.missing.items():
            found.get(label, {})[board.dataset] = why
    rows: list[tuple[Cell, ...]] = [
        (label, *(cells.get(board.dataset, NOT_RUN) for board in same_protocol))
        for label, cells in sorted(
            found.items(), key=lambda each: (statistics.fmean(places[each[0]]), each[0])
        )
    ]
    leaky = " · LEAKY" if first.leaky else ""
    file = f"overview--{first.protocol}--{'leaky' if first.leaky else name}"
    note = first.note(f"Mean ± standard deviation over seeds. {KNOWN}")
    head = ("method", *(board.dataset for board in same_protocol))
    return Table(file, f"Full-ranking NDCG@10, {name}, protocol {first.protocol}{leaky}", head, rows, note)


def comparison_tables(board: Board) -> Iterator[Table]:
    """One table for each test: differences of all rows to all centralized models."""
    if board.leaky:
        return
    made = compare(board)
    for name in TESTS:
        here = {(each.ours.label, each.theirs.label): each for each in made if each.test == name}
        against = list(dict.fromkeys(theirs for _, theirs in here))
        rows: list[tuple[Cell, ...]] = []
        for ours in dict.fromkeys(each.ours.label for each in here.values()):
            found = (here.get((ours, theirs)) for theirs in against)
            rows.append((ours, *(each.interval if each else NONE for each in found)))
        if not rows:
            continue
        title = f"{board.title}: against centralized models, {name}"
        note = board.note(HOW.format(count=len(made)))
        yield Table(f"{board.name}--against-{name}", title, ("method", *against), rows, note)


def cost_table(board: Board) -> Table:
    """All federated rows; a centralized model costs a client its whole history instead."""
    rows: list[tuple[Cell, ...]] = [(row.name, *_cells(row)) for row in board.rows if not row.central]
    return Table(
        f"{board.name}--costs", f"{board.title}: costs of a client", COST_COLUMNS, rows, board.note(COSTS)
    )


def _cells(row: Row) -> Iterator[Cell]:
    each = (_costs(record) for record in row.records)
    return (_mean(values) for values in zip(*each, strict=True))


def _costs(record: Record) -> tuple[float | None, ...]:
    """What `COST_COLUMNS` names, in its order; None is not recorded."""
    result, costs = record.result, record.costs
    in_a_round, until = result.bytes, record.bytes_until_selected
    return (
        result.selected_round,
        *((in_a_round.up / 1e3, in_a_round.down / 1e3) if in_a_round else (None, None)),
        *((until.up / 1e6, until.down / 1e6) if until else (None, None)),
        costs.seconds_per_client if costs else None,
        result.seconds_per_round,
        client_memory(record),
    )


def _mean(values: Sequence[float | None]) -> Cell:
    known = [float(value) for value in values if value is not None]
    return statistics.fmean(known) if len(known) == len(values) else "not recorded"


def client_memory(record: Record) -> float | None:
    """Megabytes that an average client holds in a round; None if its record does not tell."""
    moved, config = record.result.bytes, record.config
    coded = record.result.upload or record.result.download or config.get("noise") or config.get("dp")
    if moved is None or coded or record.result.secure_aggregation:
        return None
    try:
        method = find(config["method"], config["options"], config.get("plugins", ()))
    except (SoleraError, KeyError):  # settings of another version
        return None
    if method.one_round:  # solved: a client holds what it sends and what it receives
        return (moved.up + moved.down) / 1e6
    touched = rows_of_upload(method, moved.up)
    return None if touched is None else client_bytes(method, record.result.items, touched) / 1e6
