"""How the runs came to their figures, round by round."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from solera.report.chart import Chart, Figure, Series, by_x, fits_log, series_of
from solera.report.recorded import Recorded

SHOWN = {
    "validation-full": ("Validation NDCG@10, whole catalogue", "NDCG@10", ("validation", "full", "ndcg@10")),
    "validation-sampled99": (
        "Validation HR@10, 99 sampled negatives",
        "HR@10",
        ("validation", "sampled99", "hr@10"),
    ),
    "loss": ("Training loss", "loss", ("loss",)),
}


def convergence(runs: Sequence[Recorded]) -> list[Figure]:
    """Validation figures and loss of every run; a ring around the round that was selected."""
    made = []
    for name, (title, label, keys) in SHOWN.items():
        least = 2 if name == "loss" else 1  # what is solved in one round has no course
        series = [each for run in runs if len((each := _course(run, keys)).y) >= least]
        if not series:
            continue
        caption = "A ring marks the round that counts."
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


def _course(run: Recorded, keys: Sequence[str]) -> Series:
    points = [(entry["round"], value) for entry in run.history if (value := _value(entry, keys)) is not None]
    selected = run.result.get("selected_round") if run.result else None
    rounds = [number for number, _ in points]
    ring = rounds.index(selected) if selected in rounds else None
    return series_of(run, [value for _, value in points], x=rounds, ring=ring)


def _value(entry: Mapping[str, Any], keys: Sequence[str]) -> float | None:
    found: Any = entry
    for key in keys:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, int | float) and math.isfinite(found) else None
