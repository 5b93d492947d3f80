"""The page: its content as data, sections in their order, styles and script inside; and how it is written."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from solera.core.errors import RunError
from solera.core.files import write_atomically
from solera.core.text import render
from solera.evaluate import get
from solera.report.chart import Figure, as_csv, draw, plain
from solera.report.figures import RANKINGS, make_figures
from solera.report.recorded import Recorded, data_name, flatten, read_runs
from solera.runs.environment import anonymous
from solera.study.statistics import SHOWN

LONG, FEW = 200, 20  # rows: of more than so many, only a few stand on the page


@dataclass(frozen=True)
class Text:
    """Words or a number. `value` is the whole of the number, for programs; leaky words are red."""

    words: str
    value: float | None = None
    below: Text | None = None  # in small letters, on a line of its own
    leaky: bool = False


@dataclass(frozen=True)
class Row:
    """One line of a table."""

    name: Text
    cells: Sequence[Text]
    differs: bool = False


@dataclass(frozen=True)
class RowGroup:
    """Lines of a table, below what they have in common."""

    rows: Sequence[Row]
    title: Text | None = None
    note: str = ""


@dataclass(frozen=True)
class Table:
    """A table; with `switch`, an element's name, it can be narrowed down to what differs."""

    columns: Sequence[Text]
    groups: Sequence[RowGroup]
    title: str = ""
    about: str = ""
    switch: str = ""

    @property
    def has_differences(self) -> bool:
        """Whether some of its lines differ between runs."""
        return any(row.differs for group in self.groups for row in group.rows)


@dataclass(frozen=True)
class Drawn:
    """A figure as the page shows it."""

    name: str
    title: str
    caption: str
    chart: str  # SVG
    data: Table
    file: str  # all of its data, in base64


@dataclass(frozen=True)
class Section:
    """A part of the page. One with neither tables nor figures is left out."""

    name: str
    title: str
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    missing: Mapping[str, Sequence[Text]] = field(default_factory=dict)  # which runs, by why

    @property
    def grids(self) -> list[list[Drawn]]:
        """The figures; leaky ones begin a line of their own."""
        parts: tuple[list[Drawn], list[Drawn]] = ([], [])
        for figure in self.figures:
            parts[figure.name.endswith("-leaky")].append(_drawn(figure))
        return [some for some in parts if some]


def named(title: str) -> Text:
    """A run's title; a leaky one in red."""
    return Text(title, leaky=title.endswith("(LEAKY)"))


def number(value: float, digits: int = 4, below: Text | None = None, *, leaky: bool = False) -> Text:
    """Format a number for people."""
    if not math.isfinite(value):
        return Text("–", None, below, leaky)
    shown = f"{value:,}" if isinstance(value, int) else f"{value:,.{digits}f}"
    if isinstance(value, float) and value and abs(value) < 0.5 * 10.0**-digits:
        shown = f"{value:.2e}"
    return Text(shown, value, below, leaky)


def size(count: float) -> Text:
    """A number of bytes."""
    shown = count
    for unit in ("B", "kB", "MB", "GB"):
        if shown < 1000 or unit == "GB":
            break
        shown /= 1000
    return Text(f"{shown:,.0f} {unit}" if unit == "B" else f"{shown:,.1f} {unit}", count)


def cell(value: Any) -> Text:
    """Format any value of a record."""
    if value is None:
        return Text("–")
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    if isinstance(value, int | float):
        return number(value)
    return named(str(value))


def comparison(runs: Sequence[Recorded], contents: Sequence[Mapping[str, Any]], switch: str = "") -> Table:
    """What nested records say, a line for each entry; those in which the runs differ come first."""
    found = [dict(flatten(content)) for content in contents]
    keys = list(dict.fromkeys(key for each in found for key in each))
    differ = {key for key in keys if len({repr(each.get(key)) for each in found}) > 1}
    rows = [
        Row(Text(key), [_exact(each.get(key)) for each in found], differs=key in differ)
        for key in sorted(keys, key=lambda key: key not in differ)
    ]
    return Table([Text(""), *(named(run.title) for run in runs)], [RowGroup(rows)], switch=switch)


def _exact(value: Any) -> Text:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return cell(value)
    return Text(f"{value:g}")


def _drawn(figure: Figure) -> Drawn:
    """With its data beside it: as a table to open (of many rows, the first), and as a file."""
    shown = figure.rows[:FEW] if len(figure.rows) > LONG else figure.rows
    rows = [Row(cell(line[0]), [cell(plain(value)) for value in line[1:]]) for line in shown]
    if len(shown) < len(figure.rows):
        rows.append(Row(Text(f"… all {len(figure.rows)} rows are in the file below"), ()))
    return Drawn(
        figure.name,
        figure.title,
        figure.caption,
        draw(figure.chart, figure.title),
        Table([named(column) for column in figure.columns], [RowGroup(rows)]),
        base64.b64encode(as_csv(figure).encode()).decode(),
    )


LEAKY = "LEAKY: held-out items can be told from the training negatives; do not compare with honest figures"


def headline_table(runs: Sequence[Recorded]) -> Table:
    """Test figures with intervals, under a line for every data set, protocol and test."""
    figures = [Text(metric.upper(), below=Text(name)) for name in RANKINGS.values() for metric in SHOWN]
    groups: dict[tuple[str, ...], list[Recorded]] = {}
    for run in runs:
        groups.setdefault((*run.split, run.tested or "test"), []).append(run)
    return Table([Text("run"), *figures, Text("round")], [_group(some) for some in groups.values()])


def _group(runs: Sequence[Recorded]) -> RowGroup:
    rows = [Row(named(run.title), [*_cells(run), _round(run)]) for run in runs]
    first = runs[0]
    about = " · ".join(filter(None, (first.dataset, f"protocol {first.config.protocol}", first.tested)))
    if first.leaky:
        return RowGroup(rows, Text(f"{about} · {LEAKY}", leaky=True))
    return RowGroup(rows, Text(about), get(first.config.protocol).summary)


def _cells(run: Recorded) -> Iterator[Text]:
    for kind in RANKINGS:
        for metric in SHOWN:
            if run.result is None:
                yield Text("–")
                continue
            found = run.users.intervals[kind][metric] if run.users else None
            around = Text(f"{found.low:.4f} – {found.high:.4f}") if found else None
            yield number(run.result.main[1][kind][metric], below=around, leaky=run.leaky)


def _round(run: Recorded) -> Text:
    if run.result is None:
        return Text(f"unfinished: {len(run.history)} of {run.config.rounds}")
    return Text(f"{run.result.selected_round} of {run.result.rounds}")


def missing(runs: Sequence[Recorded]) -> dict[str, list[Text]]:
    """Runs without intervals, by reason."""
    reasons: dict[str, list[Text]] = {}
    for run in runs:
        if run.users is None:
            reasons.setdefault(run.without_users, []).append(named(run.title))
    return reasons


def cost_table(runs: Sequence[Recorded]) -> Table:
    """Bytes, seconds and memory, of the server and of a client."""
    columns = (
        "run",
        "client: up a round",
        "client: down a round",
        "client: up + down till the round that counts",
        "client: state kept, mean",
        "server: up + down a round",
        "server: state kept",
        "training, s a round (median)",
        "training, s in all",
        "validation, s in all",
        "peak memory of the simulation",
    )
    rows = [Row(named(run.title), list(_costs(run))) for run in runs if run.result]
    return Table([Text(column) for column in columns], [RowGroup(rows)])


def _costs(run: Recorded) -> Iterator[Text]:
    result = run.result
    assert result is not None
    assert result.bytes is not None
    users, until = result.users, run.history[: result.selected_round]
    moved = [(entry.bytes.up + entry.bytes.down) * entry.clients for entry in run.history]
    yield size(result.bytes.up)
    yield size(result.bytes.down)
    yield size(sum(moved[: len(until)]) / users)
    yield size(_file_size(run, "personal") / users)
    yield size(sum(moved) / max(1, len(moved)))
    yield size(_file_size(run, "shared"))
    yield number(result.seconds_per_round or 0.0, 3)
    yield number(sum(entry.seconds.train for entry in run.history), 1)
    yield number(sum(entry.seconds.evaluate for entry in run.history), 1)
    yield size(result.peak_bytes) if result.peak_bytes else Text("not recorded")


def _file_size(run: Recorded, part: str) -> int:
    path = run.path / f"{part}.safetensors"
    return path.stat().st_size if path.exists() else 0


def privacy_table(runs: Sequence[Recorded]) -> Table | None:
    """Table of privacy statements; None if no run has one."""
    stated = [(run, run.result.privacy) for run in runs if run.result and run.result.privacy]
    return comparison(*zip(*stated, strict=True)) if stated else None


def configuration(runs: Sequence[Recorded]) -> Table:
    """Settings of the runs, without paths of own files."""
    contents = [run.config.model_dump(mode="json") for run in runs]
    shown = [each | {"dataset": data_name(each["dataset"])} for each in contents]
    return comparison(runs, shown, switch="settings")


def machines(runs: Sequence[Recorded]) -> Table:
    """Machine and versions; no host's name."""
    return comparison(runs, [anonymous(run.environment) for run in runs], switch="machines")


_TEMPLATES = Path(__file__).parent / "templates"


def make_page(runs: Sequence[Recorded], figures: Mapping[str, Sequence[Figure]]) -> str:
    """One HTML document. `figures` are those of `make_figures`, by section."""
    privacy = privacy_table(runs)
    parts = [
        Section(
            "headline",
            "Figures",
            figures["headline"],
            [headline_table(runs)],
            missing(runs),
        ),
        Section("by-option", "By setting", figures["by-option"]),
        Section("convergence", "Convergence", figures["convergence"]),
        Section("activity", "By activity", figures["activity"]),
        Section("cost", "Cost", figures["cost"], [cost_table(runs)]),
        Section("privacy", "Privacy", tables=[privacy] if privacy else []),
        Section("configuration", "Configuration", tables=[configuration(runs)]),
        Section("environment", "Environment", tables=[machines(runs)]),
    ]
    leaky = [run for run in runs if run.leaky]
    warning = f"{len(leaky)} of {len(runs)} runs: {LEAKY}." if leaky else ""
    return document(_title(runs), parts, warning)


def document(title: str, parts: Sequence[Section], warning: str = "") -> str:
    """A page of sections; those that are empty are left out."""
    return render(
        "solera.report",
        "page.html",
        title=title,
        warning=warning,
        sections=[part for part in parts if part.tables or part.figures],
        style=_file("page.css"),
        script=_file("page.js"),
    )


def _title(runs: Sequence[Recorded]) -> str:
    count = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    return f"{count} on {', '.join(dict.fromkeys(run.dataset for run in runs))}"


def _file(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


class Report(NamedTuple):
    """A page that was written: the runs on it, and all files."""

    runs: list[Recorded]
    written: list[Path]


def write_report(
    runs: Sequence[Path],
    output: Path,
    *,
    figures: bool = False,
    use_data: bool = True,
    data_dir: Path | None = None,
    tell: Callable[[str], None] = lambda done: None,
) -> Report:
    """Write the page of these run folders; `tell` is called with each step that is done."""
    read = read_runs(runs, data_dir=data_dir, use_data=use_data, tell=lambda path: tell(f"read {path}"))
    made = make_figures(read, lambda title: tell(f"drew {title}"))
    return Report(read, write_page(output, make_page(read, made), made if figures else {}))


def write_page(page: Path, text: str, figures: Mapping[str, Sequence[Figure]]) -> list[Path]:
    """Write a page, and the given charts into a folder beside it; returns the files written."""
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(page, text)
        if not figures:
            return [page]
        folder = page.with_name(f"{page.stem}-figures")
        folder.mkdir(exist_ok=True)
        return [page, *(file for some in figures.values() for each in some for file in _files(each, folder))]
    except OSError as error:
        raise RunError(f"{page} cannot be written: {error.strerror}", "give another --output") from None


def _files(figure: Figure, folder: Path) -> Iterator[Path]:
    """NAME.svg and NAME.csv of a figure."""
    for suffix, text in (
        ("svg", draw(figure.chart, figure.title, alone=True) + "\n"),
        ("csv", as_csv(figure)),
    ):
        path = folder / f"{figure.name}.{suffix}"
        path.write_text(text, encoding="utf-8")
        yield path
