"""How averaging skews users' vectors, and how far merging may go: the quantities of `core.skew`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from solera.core.skew import Skew
from solera.report.chart import Chart, Figure, Series, by_x, fits_log, series_of
from solera.report.recorded import Recorded

ACCUMULATED = "accumulated skew"


def skews(runs: Sequence[Recorded]) -> list[Figure]:
    """For each run, the norms of the terms of the gradient by a user vector (PFedCLR's lemmas)."""
    return [figure for run in runs if (figure := _skews(run)) is not None]


def _skews(run: Recorded) -> Figure | None:
    rounds = [number for number in run.rounds if "skew/norms" in run.rounds[number]]
    if not rounds:
        return None
    means = np.stack([run.rounds[number]["skew/norms"].mean(0) for number in rounds])
    lines = {name: [float(each) for each in means[:, place]] for place, name in enumerate(Skew._fields)}
    lines[ACCUMULATED] = _accumulated(run, rounds)
    series = [
        Series(name, y, rounds, colour=colour, key=f"skew{run.number}-{colour}")
        for colour, (name, y) in enumerate(lines.items())
    ]
    return Figure(
        name=f"skew-{run.number + 1}",
        title=f"User embedding skew, {run.title}",
        caption="Norms, mean over some users spread by activity: the gradient by the user vector on the rows "
        "the user trained, what it changes by on the server's rows (skew), the lemmas' scaling and shift "
        "terms, and PFedCLR's calibration. The accumulated skew is the norm of the sum over rounds, times "
        "the learning rate.",
        chart=Chart("lines", series, "round", "norm", log_y=fits_log([y for s in series for y in s.y])),
        columns=("round", *lines),
        rows=by_x(series),
    )


def _accumulated(run: Recorded, rounds: Sequence[int]) -> list[float]:
    """Mean over users of ‖Σ_t η skew_t‖; a user who does not take part in a round adds nothing."""
    total: dict[int, np.ndarray] = {}
    found = []
    for number in rounds:
        arrays = run.rounds[number]
        for user, vector in zip(arrays["skew/users"].tolist(), arrays["skew/vectors"], strict=True):
            total[user] = total.get(user, 0.0) + vector.astype(np.float64)
        found.append(float(np.mean([np.linalg.norm(each) for each in total.values()])))
    return found


def merging_limits(runs: Sequence[Recorded]) -> list[Figure]:
    """A / (A + C) of every run, by round (FedEM's Lemma 2)."""
    series = []
    for run in runs:
        rounds = [number for number in run.rounds if "skew/deviations" in run.rounds[number]]
        if rounds:
            means = [float(run.rounds[number]["skew/deviations"][:, 3].mean()) for number in rounds]
            series.append(series_of(run, means, x=rounds))
    if not series:
        return []
    return [
        Figure(
            name="merging-limit",
            title="Limit of the merging weight",
            caption="A / (A + C) of FedEM's Lemma 2, mean over some users spread by activity: below this "
            "weight of the shared table, merging leads towards the user's own optimum for certain. The loss "
            "has an L2 penalty of weight 0.01.",
            chart=Chart("lines", series, "round", "A / (A + C)"),
            columns=("round", *(each.label for each in series)),
            rows=by_x(series),
        )
    ]
