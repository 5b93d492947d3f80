"""Convergence of the runs, round by round."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from solera.report.chart import Chart, Figure, Series, by_x, fits_log, popularity_lines, series_of
from solera.report.recorded import Recorded
from solera.runs import RoundEntry
from solera.runs.result import Ranking

Value = Callable[[RoundEntry], float | None]
POPULARITY: dict[str, tuple[Ranking, str]] = {  # the baseline's line in a chart
    "validation-full": ("full", "ndcg@10"),
    "validation-sampled99": ("sampled99", "hr@10"),
}
SHOWN: dict[str, tuple[str, str, Value]] = {
    "validation-full": (
        "Validation NDCG@10, whole catalogue",
        "NDCG@10",
        lambda entry: entry.validation.full.get("ndcg@10") if entry.validation else None,
    ),
    "validation-sampled99": (
        "Validation HR@10, 99 sampled negatives",
        "HR@10",
        lambda entry: entry.validation.sampled99.get("hr@10") if entry.validation else None,
    ),
    "loss": ("Training loss", "loss", lambda entry: entry.loss),
}


def convergence(runs: Sequence[Recorded]) -> list[Figure]:
    """Validation figures and loss of every run; a ring around the round that was selected."""
    made = []
    for name, (title, label, value) in SHOWN.items():
        least = 2 if name == "loss" else 1  # what is solved in one round has no course
        series = [each for run in runs if len((each := _course(run, value)).y) >= least]
        if not series:
            continue
        caption = "A ring marks the round that counts."
        if name in POPULARITY and (lines := popularity_lines(runs, *POPULARITY[name], series)):
            series += lines
            caption += " The level line is the popularity baseline."
        if name == "loss":
            caption += " Methods have losses of their own: only the course is comparable, not the height."
        log = name == "loss" and fits_log([y for each in series for y in each.y])
        made.append(
            Figure(
                name=f"convergence-{name}",
                title=title,
                caption=caption,
                chart=Chart("lines", series, "round", label, log_y=log),
                columns=("round", *(each.label for each in series)),
                rows=by_x(series),
            )
        )
    return made


def _course(run: Recorded, value: Value) -> Series:
    points = [
        (entry.round, found)
        for entry in run.history
        if (found := value(entry)) is not None and math.isfinite(found)
    ]
    selected = run.result.selected_round if run.result else None
    rounds = [number for number, _ in points]
    ring = rounds.index(selected) if selected in rounds else None
    return series_of(run, [found for _, found in points], x=rounds, ring=ring)
