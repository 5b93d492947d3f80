"""The parts of the page that are tables: figures, cost, privacy, configuration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from solera.evaluate import get
from solera.report.content import Row, RowGroup, Table, Text, comparison, named, number, size
from solera.report.figures.headline import RANKINGS
from solera.report.recorded import Recorded, data_name
from solera.study.provenance import anonymous
from solera.study.statistics import SHOWN

LEAKY = "LEAKY: held-out items can be told from the training negatives; do not compare with honest figures"


def headline_table(runs: Sequence[Recorded]) -> Table:
    """Test figures with intervals, under a line for every data set and protocol."""
    figures = [Text(metric.upper(), below=Text(name)) for name in RANKINGS.values() for metric in SHOWN]
    together = groupby(runs, lambda run: (run.dataset, run.config.protocol))
    return Table([Text("run"), *figures, Text("round")], [_group(list(some)) for _, some in together])


def _group(runs: Sequence[Recorded]) -> RowGroup:
    rows = [Row(named(run.title), [*_figures(run), _round(run)]) for run in runs]
    first = runs[0]
    about = f"{first.dataset} · protocol {first.config.protocol}"
    if first.leaky:
        return RowGroup(rows, Text(f"{about} · {LEAKY}", leaky=True))
    return RowGroup(rows, Text(about), get(first.config.protocol).summary)


def _figures(run: Recorded) -> Iterator[Text]:
    for kind in RANKINGS:
        for metric in SHOWN:
            if run.result is None:
                yield Text("–")
                continue
            found = run.users.intervals[kind][metric] if run.users else None
            around = Text(f"{found.low:.4f} – {found.high:.4f}") if found else None
            yield number(run.result.test[kind][metric], below=around, leaky=run.leaky)


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
