"""The boards of the results page: what the records of a data set and protocol show, and on which tuning."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path

from blocks.markdown import NONE_YET, anchor, table

from solera.bench.blocks import HISTORIES, NOT_RUN, Block, blocks
from solera.bench.comparisons import (
    Comparison,
    compare,
    comparison_tables,
    is_popularity,
    names,
    statements,
)
from solera.bench.cost_tables import cost_table
from solera.bench.forms import Table
from solera.bench.records import Failure, Record
from solera.bench.studies import Study
from solera.bench.tables import activity_table, main_table, overview_table

Place = tuple[str, str]  # data set, protocol
EQUAL = "[equal tuning](benchmarks.md#equal-tuning)"
EARLIER = "an earlier, shorter search"


@dataclass(frozen=True)
class Board:
    """A block, and the tuning that its settings come from."""

    block: Block
    tuning: str

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """All comparisons of its models, corrected together."""
        return compare(self.block)

    @property
    def title(self) -> str:
        """As in a heading."""
        return f"{self.block.dataset}, {self.block.protocol}"


def wanted(matrix: Path) -> dict[Place, list[str]]:
    """Labels that a matrix of `tune` tables asks for, by data set and protocol."""
    if not matrix.exists():
        return {}
    asked: dict[Place, list[str]] = {}
    for each in tomllib.loads(matrix.read_text("utf-8"))["tune"]:
        labels = [
            each.get("labels", {}).get(name, name)
            for name in (*each.get("baselines", ()), *each.get("methods", ()))
        ]
        for place in product(each["datasets"], each.get("protocols", ["strict"])):
            asked.setdefault(place, []).extend(labels)
    return asked


def newest(equal: Sequence[Record], earlier: Sequence[Record]) -> list[Record]:
    """Records by equal tuning, and the earlier ones of what it has not run yet.

    Its search begins with the defaults, so that their earlier runs are not needed either.
    """
    done = {(run.label, run.dataset, run.protocol) for run in equal}
    return [
        *equal,
        *(
            run
            for run in earlier
            if (run.label.removesuffix(", defaults"), run.dataset, run.protocol) not in done
        ),
    ]


def boards(
    equal: tuple[Sequence[Record], Sequence[Failure], Sequence[Study]],
    earlier: tuple[Sequence[Record], Sequence[Failure], Sequence[Study]],
    asked: dict[Place, list[str]],
) -> list[Board]:
    """One board for every data set and protocol: rows by equal tuning, and earlier ones of all others."""
    tuned = {(record.label, record.dataset, record.protocol) for record in equal[0]}
    honest = [run for run in earlier[0] if not run.result.leaky and run.label != run.preset]
    made = []
    for block in blocks(newest(equal[0], honest), [*equal[1], *earlier[1]]):
        place = block.dataset, block.protocol
        labels = [row.label for row in block.rows]
        missing = {label: block.missing.get(label, NOT_RUN) for label in asked.get(place, block.missing)}
        left = {label: why for label, why in missing.items() if label not in labels}
        by_equal = [label for label in labels if (label, *place) in tuned]
        rest = [label for label in labels if label not in by_equal]
        searches = (EQUAL + _trials(equal[2], place), EARLIER + _trials(earlier[2], place))
        tuning = _tuning(searches, by_equal, rest, len(asked.get(place, ())))
        made.append(Board(replace(block, missing=left), tuning))
    return sorted(made, key=lambda board: (board.block.dataset, board.block.protocol))


def _tuning(searches: tuple[str, str], by_equal: list[str], rest: list[str], asked: int) -> str:
    """Which of both searches the rows come from."""
    equal, earlier = searches
    if not by_equal:
        return earlier + (f"; {EQUAL} has not been run here" if asked else "")
    if not rest:
        return equal
    so_far = f"for {len(by_equal)} of {asked} models so far: {names(by_equal)}"
    return f"{equal}, {so_far}; all others by {earlier}"


def _trials(studies: Sequence[Study], place: Place) -> str:
    """Models without options have one trial and do not count."""
    trials = sorted(
        len(study.trials) for study in studies if (study.dataset, study.protocol) == place and study.space
    )
    if not trials:
        return " (no study is recorded)"
    count = f"{trials[0]}" if trials[0] == trials[-1] else f"{trials[0]} to {trials[-1]}"
    return f" ({count} trials for each model)"


def overall(found: Sequence[Board], asked: dict[Place, list[str]]) -> str:
    """One line for every board and history, and the boards that have no records."""
    rows = []
    for board in found:
        made = board.comparisons
        for history, words in HISTORIES.items():
            here = [each for each in made if each.history == history and not each.ours.central]
            federated = [
                row.label for row in board.block.rows if not row.central and row.per_user(history) is not None
            ]
            popular = any(is_popularity(row) for row in board.block.rows)
            beat = [
                each.ours.label for each in here if is_popularity(each.theirs) and each.verdict == "above"
            ]
            others = [each for each in here if not is_popularity(each.theirs)]
            never_below = [
                label
                for label in federated
                if any(each.ours.label == label for each in others)
                and all(each.verdict != "below" for each in others if each.ours.label == label)
            ]
            against = list(dict.fromkeys(each.theirs.label for each in others))
            rows.append(
                (
                    f"{board.title}; {words}",
                    str(len(federated)) if federated else NOT_RUN,
                    (names(beat) or "none") if federated and popular else NOT_RUN,
                    (names(never_below) or "none") if against else NOT_RUN,
                    names(against) or NOT_RUN,
                    str(len(made)),
                )
            )
    head = (
        *("board; history", "federated methods", "above popularity"),
        *("level with or above all of the next column", "centralized models", "comparisons"),
    )
    without = [f"{dataset} ({protocol})" for dataset, protocol in asked if not _has(found, dataset, protocol)]
    below = f"\n\nNot run at all: {', '.join(without)}." if without else ""
    return (table(head, rows) if rows else NONE_YET) + below


def _has(found: Sequence[Board], dataset: str, protocol: str) -> bool:
    return any((board.block.dataset, board.block.protocol) == (dataset, protocol) for board in found)


def overview(found: Sequence[Board], known: str) -> str:
    """All methods on all data sets under `strict`, by models that know these items of a user."""
    history = next(history for history, words in HISTORIES.items() if words == known)
    same = [board.block for board in found if board.block.protocol == "strict"]
    return overview_table(same, history).grid() if same else NONE_YET


def one_by_one(found: Sequence[Board]) -> str:
    """Every board: its tuning, sentences, figures, and what it costs a client."""
    return "\n\n".join(part for board in found for part in _board(board)) or NONE_YET


def _board(board: Board) -> Iterator[str]:
    block, made = board.block, board.comparisons
    yield f"### {board.title}"
    seeds = sorted({len(row.records) for row in block.rows})
    seeds_text = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    yield (
        f"Settings: {board.tuning}. Seeds: {seeds_text}. Comparisons: {len(made)}, corrected together; "
        f"[each with its interval](comparisons.md#{anchor(board.title)})."
    )
    for history, words in HISTORIES.items():
        lines = "\n".join(f"- {line}" for line in statements(block, made, history))
        yield f"**What it shows, {words}:**\n\n{lines}"
    yield grid(main_table, block)
    if any(not row.central for row in block.rows):
        yield "What a client pays:"
        yield cost_table(block).grid()


def pair_by_pair(found: Sequence[Board]) -> str:
    """Every comparison of every board, with its interval."""
    parts = []
    for board in found:
        parts += [f"## {board.title}", f"{len(board.comparisons)} comparisons. Settings: {board.tuning}."]
        for each in comparison_tables(board.block):
            parts += [f"{each.title.rpartition(', ')[2]}:".capitalize(), each.grid()]
        without = [label for label, why in board.block.missing.items() if why == NOT_RUN]
        parts += [f"Not run: {names(without)}."] if without else []
    return "\n\n".join(parts) or NONE_YET


def by_user_activity(found: Sequence[Board], dataset: str) -> str:
    """Users of one data set in quarters, in full ranking."""
    block = next((board.block for board in found if board.title == f"{dataset}, strict"), None)
    return grid(lambda block: activity_table(block, "full"), block) if block else NONE_YET


def where_recorded(found: Sequence[Board], make: Callable[[Block], Table], name: str) -> str:
    """The tables of all boards that have such figures of any model, and the names of the other boards."""
    parts, without = [], []
    for board in found:
        cells = [cell for row in make(board.block).rows for cell in row[-2:]]
        if all(cell == NOT_RUN for cell in cells):
            without.append(board.title)
        else:
            parts += [f"### {name}, {board.title}", grid(make, board.block)]
    return "\n\n".join([*parts, f"Not recorded: {'; '.join(without)}."] if without else parts) or NONE_YET


def grid(make: Callable[[Block], Table], block: Block) -> str:
    """A table of a board, and below it what is missing there."""
    missing = ", ".join(
        f"`{label}`" + (f" ({why})" if why != NOT_RUN else "") for label, why in block.missing.items()
    )
    below = f"\n\nNot run here: {missing}." if missing else ""
    return make(replace(block, missing={})).grid() + below
