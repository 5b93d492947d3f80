"""A client's traffic, and the quality reached for it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from solera.evaluate import get
from solera.report.chart import Chart, Figure, fits_log, popularity_lines, series_of
from solera.report.recorded import Recorded

MEGABYTE = 1e6


def traffic(runs: Sequence[Recorded]) -> list[Figure]:
    """Bytes of one client in one round."""
    shown = [(run, run.result.bytes) for run in runs if run.result and run.result.bytes]
    if not shown:
        return []
    values = [[sent.up / MEGABYTE, sent.down / MEGABYTE] for _, sent in shown]
    flat = [value for pair in values for value in pair]
    return [
        Figure(
            name="traffic",
            title="Traffic of one client in one round",
            caption="Mean over clients and rounds, as measured by the engine.",
            chart=Chart(
                "bars",
                [series_of(run, pair) for (run, _), pair in zip(shown, values, strict=True)],
                "",
                "MB, logarithmic" if fits_log(flat) else "MB",
                ("up", "down"),
                log_y=fits_log(flat),
            ),
            columns=("run", "bytes up", "bytes down"),
            rows=[(run.title, sent.up, sent.down) for run, sent in shown],
        )
    ]


def quality_by_traffic(runs: Sequence[Recorded]) -> list[Figure]:
    """The validation figure that selects the round, over all bytes an average client has moved till then."""
    series = []
    for run in runs:
        if run.result is None or not run.history:
            continue
        moved = [
            (entry.bytes.up + entry.bytes.down) * entry.clients / run.result.users / MEGABYTE
            for entry in run.history
        ]
        points = [
            (entry.round, so_far, entry.validation.full["ndcg@10"])
            for entry, so_far in zip(run.history, accumulate(moved), strict=True)
            if entry.validation
        ]
        rounds = [number for number, _, _ in points]
        on_full = get(run.config.protocol).select_on == "full"
        ring = rounds.index(run.result.selected_round or 1) if on_full else None
        series.append(series_of(run, [y for *_, y in points], x=[x for _, x, _ in points], ring=ring))
    if not series:
        return []
    far = fits_log([each.x[-1] for each in series])
    return [
        Figure(
            name="quality-by-traffic",
            title="Validation NDCG@10 for the traffic",
            caption="Bytes up and down of an average client since the first round; whole catalogue. "
            "A run of one round is a single ring. A level line is the popularity baseline.",
            chart=Chart(
                "lines",
                [*series, *popularity_lines(runs, "full", "ndcg@10", series)],
                "MB of one client",
                "NDCG@10",
                log_x=far,
            ),
            columns=("run", "round", "MB", "NDCG@10"),
            rows=[
                (each.label, number, x, y)
                for each in series
                for number, (x, y) in enumerate(zip(each.x, each.y, strict=True), start=1)
            ],
        )
    ]
