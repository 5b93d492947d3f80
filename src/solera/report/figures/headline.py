"""The main test metrics of all runs."""

from __future__ import annotations

from collections.abc import Sequence

from solera.report.chart import Cell, Chart, Figure, series_of
from solera.report.recorded import Recorded
from solera.runs.result import Ranking
from solera.study.statistics import SHOWN

ONE_OF_EACH: dict[Ranking, str] = {"full": "ndcg@10", "sampled99": "hr@10"}  # where there is room for one
RANKINGS: dict[Ranking, str] = {"full": "whole catalogue", "sampled99": "99 sampled negatives"}


def headline(runs: Sequence[Recorded]) -> list[Figure]:
    """HR@10 and NDCG@10 on test items, with intervals over users where there are any."""
    finished = [run for run in runs if run.result]
    return [_figure(finished, kind, name) for kind, name in RANKINGS.items()] if finished else []


def _figure(runs: Sequence[Recorded], kind: Ranking, name: str) -> Figure:
    series, rows = [], []
    for run in runs:
        assert run.result is not None
        means = [run.result.test[kind][metric] for metric in SHOWN]
        found = run.users.intervals[kind] if run.users else None
        bounds = [(found[metric].low, found[metric].high) for metric in SHOWN] if found else None
        series.append(series_of(run, means, bounds=bounds))
        for place, metric in enumerate(SHOWN):
            low, high = bounds[place] if bounds else (None, None)
            row: list[Cell] = [run.title, metric.upper(), means[place], low, high]
            rows.append(row)
    with_bounds = [each for each in series if each.bounds]
    return Figure(
        name=f"headline-{kind}",
        title=f"Test items against the {name}" if kind == "full" else f"Test items against {name}",
        caption="Whiskers are 95 % bootstrap intervals over users." if with_bounds else "Means over users.",
        chart=Chart("bars", series, "", "mean over users", [metric.upper() for metric in SHOWN]),
        columns=("run", "metric", "mean", "low", "high"),
        rows=rows,
    )
