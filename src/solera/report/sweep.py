"""A sweep on one page: all trials, what matters, and figures against every setting."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from solera.evaluate import get
from solera.report.chart import COLOURS, Chart, Figure, Series, by_x, fits_log
from solera.report.figures import METRICS, RANKINGS, Measured, against
from solera.report.page import LEAKY, Row, RowGroup, Section, Table, Text, document, named, number
from solera.study.search_space import from_json, is_grid
from solera.study.sweep import shown
from solera.study.trials import Study, Trial

ENDS = ("finished", "pruned")


def sweep_figures(study: Study) -> dict[str, list[Figure]]:
    """Figures of a sweep, by section of the page."""
    swept = study.space if is_grid(from_json(study.space)) else {}
    made = {
        "by-option": [figure for option in swept for figure in _by_option(study, option)],
        "courses": _courses(study),
        "groups": _groups(study),
        "importance": importance(study),
        "slices": [figure for option in study.space if (figure := _slice(study, option)) is not None],
    }
    if not get(study.protocol).leaky:
        return made
    return {
        section: [replace(each, title=f"{each.title} (LEAKY)") for each in some]
        for section, some in made.items()
    }


def sweep_page(study: Study, figures: dict[str, list[Figure]]) -> str:
    """One HTML document."""
    leaky = get(study.protocol).leaky
    title = f"Sweep of {study.label} on {study.dataset}" + (" (LEAKY)" if leaky else "")
    parts = [
        Section("by-option", "By setting", figures["by-option"]),
        Section("courses", "By round", figures["courses"]),
        Section("groups", "By activity", figures["groups"]),
        Section("importance", "What matters", figures["importance"]),
        Section("slices", "Trials", figures["slices"]),
        Section("trials", "All trials", tables=[_trials_table(study)]),
        Section("configuration", "What all trials share", tables=[_shared(study)]),
    ]
    return document(title, parts, f"{LEAKY}." if leaky else "")


def _finished(study: Study) -> list[Trial]:
    return [trial for trial in study.trials if trial.end == "finished" and trial.ndcg is not None]


def _by_option(study: Study, option: str) -> list[Figure]:
    leaky = get(study.protocol).leaky
    measured = []
    for trial in _finished(study):
        figures = {"validation": {"ndcg@10": trial.ndcg or 0.0, "hr@10": trial.hr or 0.0}}
        if trial.test and trial.tested:
            figures[trial.tested] = trial.test
        measured.append(Measured(trial.options, figures, leaky))
    return against(option, measured) if measured else []


def _courses(study: Study) -> list[Figure]:
    """Convergence of every trial, if there are few enough to tell apart."""
    made = [trial for trial in _finished(study) if len(trial.curve) > 1]
    if not 0 < len(made) <= COLOURS:
        return []
    chosen = get(study.protocol)
    label = chosen.select_metric.upper()
    ranking = RANKINGS[chosen.select_on]
    series = [
        Series(
            shown(trial.options),
            trial.curve,
            list(range(1, len(trial.curve) + 1)),
            colour=place,
            key=f"trial{place}",
            ring=trial.curve.index(max(trial.curve)),
            leaky=chosen.leaky,
        )
        for place, trial in enumerate(made)
    ]
    return [
        Figure(
            name="courses",
            title=f"Validation {label} by round, {ranking}",
            caption="Of every trial; a ring marks its best round.",
            chart=Chart("lines", series, "round", label),
            columns=("round", *(each.label for each in series)),
            rows=by_x(series),
        )
    ]


def _groups(study: Study) -> list[Figure]:
    """Of a sweep over one number: test figures against it, of users in groups by their training items."""
    made = [trial for trial in _finished(study) if trial.groups]
    (option, *others) = study.space
    if others or len(made) < 2 or any(isinstance(trial.options.get(option), str | None) for trial in made):
        return []
    made.sort(key=lambda trial: trial.options[option])
    x = [float(trial.options[option]) for trial in made]
    figures = []
    for metric in METRICS:
        series = []
        for place, group in enumerate(made[0].groups):
            y = [trial.groups[place].full[metric] for trial in made]
            label = f"{group.least}–{group.most} training items"
            ring = y.index(max(y))
            leaky = get(study.protocol).leaky
            series.append(Series(label, y, x, colour=place, key=f"group{place}", ring=ring, leaky=leaky))
        users = " / ".join(str(group.users) for group in made[0].groups)
        figures.append(
            Figure(
                name=f"groups-{metric.replace('@', '-')}",
                title=f"{metric.upper()} against {option} by users' activity",
                caption=f"{made[0].tested}, whole catalogue; {users} users by their number of training "
                "items. A ring marks each group's best.",
                chart=Chart("lines", series, option, metric.upper(), log_x=fits_log(x)),
                columns=(option, *(each.label for each in series)),
                rows=by_x(series),
            )
        )
    return figures


def _slice(study: Study, option: str) -> Figure | None:
    """Every trial as a point: the value of one option, and what the trial gave."""
    made = [trial for trial in study.trials if trial.ndcg is not None and option in trial.options]
    values = [trial.options[option] for trial in made]
    if not made or any(isinstance(value, str) for value in values):
        return None
    series = [
        Series(
            f"{end} trials",
            [trial.ndcg or 0.0 for trial in made if trial.end == end],
            [float(trial.options[option]) for trial in made if trial.end == end],
            colour=place,
            key=f"slice-{end}",
        )
        for place, end in enumerate(ENDS)
        if any(trial.end == end for trial in made)
    ]
    return Figure(
        name=f"slice-{option}",
        title=f"Trials by {option}",
        caption="NDCG@10 on validation items, whole catalogue, of every trial; a pruned one's until then.",
        chart=Chart("points", series, option, "NDCG@10", log_x=fits_log([float(v) for v in values])),
        columns=(option, "NDCG@10", "end"),
        rows=[(trial.options[option], trial.ndcg, trial.end) for trial in made],
    )


def importance(study: Study) -> list[Figure]:
    """How much each setting matters, where there are several of them and enough trials to say."""
    made = [trial for trial in _finished(study) if trial.options.keys() == study.space.keys()]
    if len(study.space) < 2 or len(made) < 4 or len({trial.ndcg for trial in made}) < 2:
        return []
    if is_grid(from_json(study.space)):
        shares = {option: variance_share(option, made) for option in study.space}
        caption = "Share of the variance between trials that the means by this setting's values have."
    else:
        from solera.study.tune import importances  # noqa: PLC0415, Optuna is an extra

        shares = importances(from_json(study.space), made)
        caption = "PED-ANOVA, by Optuna: how far the best trials' values lie from all trials' values."
    ordered = sorted(shares, key=lambda option: -shares[option])
    values = [shares[option] for option in ordered]
    series = [Series("importance", values, key="importance")]
    return [
        Figure(
            name="importance",
            title="Which settings matter",
            caption=f"{caption} Of {len(made)} finished trials.",
            chart=Chart("bars", series, "", "importance", ordered),
            columns=("setting", "importance"),
            rows=list(zip(ordered, values, strict=True)),
        )
    ]


def variance_share(option: str, trials: Sequence[Trial]) -> float:
    """Of a grid: the variance of the means by value over that of all trials, the option's main effect."""
    figures = np.array([trial.ndcg for trial in trials], dtype=float)
    values = np.array([json.dumps(trial.options[option]) for trial in trials])
    means = np.empty_like(figures)
    for value in np.unique(values):
        means[values == value] = figures[values == value].mean()
    return float(means.var() / figures.var())


def _trials_table(study: Study) -> Table:
    tested = next((trial.tested for trial in study.trials if trial.tested), None)
    sampled = any(trial.ndcg99 is not None for trial in study.trials)  # studies of older versions have none
    columns = ["trial", *study.space, "end", "NDCG@10", "HR@10"]
    columns += [f"{tested} NDCG@10", f"{tested} HR@10"] if tested else []
    columns += ["NDCG@10 of 99", "HR@10 of 99"] if sampled else []
    columns += [f"{tested} NDCG@10 of 99", f"{tested} HR@10 of 99"] if sampled and tested else []
    ordered = sorted(enumerate(study.trials), key=lambda pair: -(pair[1].ndcg or -1.0))
    rows = []
    for place, trial in ordered:
        cells = [_setting(trial.options.get(option)) for option in study.space]
        cells += [Text(trial.end if trial.error is None else f"{trial.end}: {trial.error}")]
        figures = [trial.ndcg, trial.hr]
        figures += [(trial.test or {}).get(name) for name in ("ndcg@10", "hr@10")] if tested else []
        figures += [trial.ndcg99, trial.hr99] if sampled else []
        figures += (
            [(trial.test99 or {}).get(name) for name in ("ndcg@10", "hr@10")] if sampled and tested else []
        )
        cells += [Text("–") if figure is None else number(figure) for figure in figures]
        rows.append(Row(Text(str(place)), cells))
    return Table([Text(column) for column in columns], [RowGroup(rows)])


def _setting(value: Any) -> Text:
    if value is None:
        return Text("as given")
    return Text(f"{value:.4g}" if isinstance(value, float) else str(value))


def _shared(study: Study) -> Table:
    shown = {key: value for key, value in study.config.items() if value not in (None, {}, [])}
    rows = [Row(Text(key), [named(json.dumps(value))]) for key, value in shown.items()]
    return Table([Text(""), Text("")], [RowGroup(rows)])
