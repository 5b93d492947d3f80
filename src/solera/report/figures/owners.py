"""Metrics by owner of the item table: the user, the server, or another user."""

from __future__ import annotations

from collections.abc import Sequence

from solera.bench.statistics import interval
from solera.report.chart import Cell, Chart, Figure, Series, series_of
from solera.report.figures.headline import ONE_OF_EACH, RANKINGS
from solera.report.recorded import Recorded
from solera.report.users import Users
from solera.runs.result import Ranking
from solera.runs.table_owners import OWNERS


def owners(runs: Sequence[Recorded]) -> list[Figure]:
    """Figures on test items by the owner of the item table, of runs whose users have tables of their own."""
    shown = [(run, run.users) for run in runs if run.users and run.users.served]
    return [_figure(shown, kind, metric) for kind, metric in ONE_OF_EACH.items()] if shown else []


def _figure(shown: Sequence[tuple[Recorded, Users]], kind: Ranking, metric: str) -> Figure:
    series: list[Series] = []
    rows: list[list[Cell]] = []
    for run, users in shown:
        rankings = [getattr(users.served[owner], f"{kind}_ranking") for owner in OWNERS]
        found = [interval(ranking.per_user[metric]) for ranking in rankings]
        bounds = [(each.low, each.high) for each in found]
        series.append(series_of(run, [each.mean for each in found], bounds=bounds))
        rows += [
            [run.title, owner, each.mean, each.low, each.high]
            for owner, each in zip(OWNERS, found, strict=True)
        ]
    return Figure(
        name=f"owners-{kind}",
        title=f"{metric.upper()} by whose item table serves, {RANKINGS[kind]}",
        caption="Users keep their own scorers, and see items as they do themselves, as the server does, "
        "or as the next user does. Whiskers are 95 % bootstrap intervals over users.",
        chart=Chart("bars", series, "item table", metric.upper(), OWNERS),
        columns=("run", "item table", metric.upper(), "low", "high"),
        rows=rows,
    )
