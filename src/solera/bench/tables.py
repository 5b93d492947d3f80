"""Tables made from records: Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from solera.bench.records import Failure, Record, UserGroup
from solera.bench.statistics import Interval, Spread, interval, spread
from solera.core.arrays import Floats
from solera.core.errors import RunError

NOT_RUN, FAILED, NONE = "not run", "failed", "–"
RANKINGS = {"full": "full ranking", "sampled99": "99 negatives"}
METRICS = {"hr@10": "HR@10", "ndcg@10": "NDCG@10"}
LEAKY = "LEAKY: under this protocol the held-out items can be told from the training negatives."
SIGNS = {"±": r"$\pm$", "−": "$-$", "·": r"$\cdot$", "–": "--", "^": r"\^{}", "~": r"\~{}"}  # in LaTeX

Cell = str | int | float | Spread | Interval


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
        rows = [self.head, *(tuple(map(_text, row)) for row in self.rows)]
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
        rows = [self.head, *(tuple(map(_text, row)) for row in self.rows)]
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
        for path, text in zip(paths, texts.values(), strict=True):
            path.write_text(text, encoding="utf-8")
        return paths


def _text(cell: Cell) -> str:
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

    @property
    def ndcg(self) -> float:
        """Mean full-ranking NDCG@10, by which rows are ordered."""
        return self.spread("full", "ndcg@10").mean

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
    for protocol in dict.fromkeys(block.protocol for block in all_blocks):
        same = [block for block in all_blocks if block.protocol == protocol]
        if len(same) > 1 and any(not row.at_home for block in same for row in block.rows):
            yield overview_table(same)


def main_table(block: Block) -> Table:
    """All labels, best first."""
    figures = [(ranking, metric) for ranking in RANKINGS for metric in METRICS]
    head = (
        "method",
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
                *(row.spread(ranking, metric) for ranking, metric in figures),
                len(row.records),
                block.difference(row),
                statistics.fmean(each.up / 1e6 for each in moved) if moved else NONE,
                statistics.fmean(each.down / 1e6 for each in moved) if moved else NONE,
                statistics.median(seconds) if seconds else NONE,
            )
        )
    rows += [(label, *[why] * len(figures), 0, why, why, why, why) for label, why in block.missing.items()]
    note = (
        "Mean ± standard deviation over seeds; paired bootstrap over users of the difference in full-ranking "
        "NDCG@10 (seeds averaged first); MB up and down: sent and received by an average client until the "
        "selected round."
    )
    return Table(block.name, block.title, head, rows, _note(block, note))


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


def overview_table(same_protocol: Sequence[Block]) -> Table:
    """All labels on all data sets, by their mean place; but for presets, which are at home on one."""
    first = same_protocol[0]
    found: dict[str, dict[str, Cell]] = {}
    places: dict[str, list[float]] = {}
    for block in same_protocol:
        for place, row in enumerate(row for row in block.rows if not row.at_home):
            found.setdefault(_named(row), {})[block.dataset] = row.spread("full", "ndcg@10")
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
    leaky = "--leaky" if first.leaky else ""
    title = f"Full-ranking NDCG@10, protocol {first.protocol}" + (" · LEAKY" if first.leaky else "")
    note = _note(first, "Mean ± standard deviation over seeds.")
    head = ("method", *(block.dataset for block in same_protocol))
    return Table(f"overview--{first.protocol}{leaky}", title, head, rows, note)


def _named(row: Row) -> str:
    return f"{row.label} (centralized)" if row.central else row.label


def _note(block: Block, note: str) -> str:
    return f"{note} Made by `solera bench tables`." + (f" {LEAKY}" if block.leaky else "")
