"""The figures of a report, one small function each.

A figure is made by a function of the runs, which returns none where they have nothing to show. A new one: a
function in a file here, entered below in the place where it shall stand.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from solera.evaluate import get
from solera.report.chart import Cell, Chart, Figure, Series, by_x, fits_log, popularity_lines, series_of
from solera.report.recorded import Recorded, flatten
from solera.runs import RoundEntry
from solera.runs.result import TESTS, Ranking
from solera.study.records import slug
from solera.study.statistics import SHOWN

ONE_OF_EACH: dict[Ranking, str] = {"full": "ndcg@10", "sampled99": "hr@10"}  # where there is room for one
RANKINGS: dict[Ranking, str] = {"full": "whole catalogue", "sampled99": "99 sampled negatives"}


def headline(runs: Sequence[Recorded]) -> list[Figure]:
    """HR@10 and NDCG@10 in the runs' test, with intervals over users where there are any."""
    finished = [run for run in runs if run.result]
    return [_headline(finished, kind, name) for kind, name in RANKINGS.items()] if finished else []


def _headline(runs: Sequence[Recorded], kind: Ranking, name: str) -> Figure:
    series, rows = [], []
    for run in runs:
        assert run.result is not None
        (tested, test) = run.result.main
        means = [test[kind][metric] for metric in SHOWN]
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
        title=f"{tested}, against the {name}" if kind == "full" else f"{tested}, against {name}",
        caption="Whiskers are 95 % bootstrap intervals over users." if with_bounds else "Means over users.",
        chart=Chart("bars", series, "", "mean over users", [metric.upper() for metric in SHOWN]),
        columns=("run", "metric", "mean", "low", "high"),
        rows=rows,
    )


QUARTERS = ("least active", "second", "third", "most active")


def activity(runs: Sequence[Recorded]) -> list[Figure]:
    """Figures on test items by quarter, of the runs whose users all four quarters are filled by."""
    shown = [(run, run.users.groups) for run in runs if run.users and len(run.users.groups) == len(QUARTERS)]
    if not shown:
        return []
    return [
        Figure(
            name=f"activity-{kind}",
            title=f"{shown[0][0].tested} {metric.upper()} by users' activity, {RANKINGS[kind]}",
            caption="Users in quarters by their number of training items; means on test items.",
            chart=Chart(
                "bars",
                [series_of(run, [getattr(group, kind)[metric] for group in groups]) for run, groups in shown],
                "users by training items",
                metric.upper(),
                QUARTERS,
            ),
            columns=("run", "quarter", "training items", "users", metric.upper()),
            rows=[
                (run.title, quarter, f"{group.least}–{group.most}", group.users, getattr(group, kind)[metric])
                for run, groups in shown
                for quarter, group in zip(QUARTERS, groups, strict=True)
            ],
        )
        for kind, metric in ONE_OF_EACH.items()
    ]


Value = Callable[[RoundEntry], float | None]
POPULARITY: dict[str, tuple[Ranking, str]] = {  # the baseline's line in a chart
    "validation-full": ("full", "ndcg@10"),
    "validation-sampled99": ("sampled99", "hr@10"),
}
COURSES: dict[str, tuple[str, str, Value]] = {
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
    for name, (title, label, value) in COURSES.items():
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


METRICS = ("ndcg@10", "hr@10")
PARTS = ("validation", *TESTS)
MOST = 4  # lines of other settings, each for validation and for a test; beyond them, the best is shown
WHO = ("method", "plugins", "dataset", "protocol", "seed")  # make another run, not another setting


@dataclass(frozen=True)
class Measured:
    """Settings and figures in full ranking; `figures` has "validation" and may have those of a test."""

    settings: Mapping[str, Any]
    figures: Mapping[str, Mapping[str, float]]
    leaky: bool = False

    @property
    def chosen_by(self) -> float:
        """What settings are chosen by."""
        return self.figures["validation"]["ndcg@10"]


def by_option(runs: Sequence[Recorded]) -> list[Figure]:
    """Finished runs that differ in one setting: their figures against it, a line for each method."""
    groups: dict[str, list[tuple[Recorded, dict[str, Any]]]] = {}
    for run in runs:
        if run.result:
            flat = _settings(run)
            groups.setdefault(", ".join(str(flat.pop(key)) for key in WHO), []).append((run, flat))
    several = [group for group in groups.values() if len(group) > 1]
    names = {_only_difference([settings for _, settings in group]) for group in several}
    if len(names) != 1 or None in names:
        return []
    name = next(iter(names))
    assert name is not None
    measured = [
        Measured(
            {name: settings[name]} | ({"method": run.config.full_method} if len(several) > 1 else {}),
            {"validation": run.result.validation.full, run.result.main[0]: run.result.main[1].full},
            run.leaky,
        )
        for group in several
        for run, settings in group
        if run.result
    ]
    return against(name, measured)


def _settings(run: Recorded) -> dict[str, Any]:
    """What was asked for, under the names a sweep gives it; ε follows from the noise."""
    whole = run.config.model_dump(mode="json")
    whole["noise"] = run.config.noise.scale if run.config.noise else 0
    flat = {key.removeprefix("options."): value for key, value in flatten(whole)}
    return {key: value for key, value in flat.items() if key != "dp.epsilon" or "dp.noise" not in flat}


def _only_difference(settings: Sequence[Mapping[str, Any]]) -> str | None:
    names = dict.fromkeys(name for each in settings for name in each)
    found = [name for name in names if len({repr(each.get(name)) for each in settings}) > 1]
    return found[0] if len(found) == 1 and all(found[0] in each for each in settings) else None


def against(option: str, measured: Sequence[Measured]) -> list[Figure]:
    """NDCG@10 and HR@10 by the values of an option; a line for every combination of the others."""
    groups: dict[str, list[Measured]] = {}
    for each in measured:
        others = (f"{key}={_text(value)}" for key, value in each.settings.items() if key != option)
        groups.setdefault(", ".join(others), []).append(each)
    caption = "Whole catalogue."
    if len(groups) > MOST:
        groups = {"": _best_by_value(option, measured)}
        caption += " For every value, the other settings that are best on validation items."
    values = list(dict.fromkeys(each.settings[option] for each in measured))
    if len(values) < 2:
        return []
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        caption += " A ring marks the best on validation items."
        return [_lines(option, metric, sorted(values), groups, caption) for metric in METRICS]
    return [_bars(option, metric, values, groups, caption) for metric in METRICS]


def _best_by_value(option: str, measured: Sequence[Measured]) -> list[Measured]:
    found = {each.settings[option]: each for each in sorted(measured, key=lambda each: each.chosen_by)}
    return list(found.values())


def _lines(
    option: str, metric: str, values: Sequence[float], groups: Mapping[str, Sequence[Measured]], caption: str
) -> Figure:
    series = []
    for number, (name, group) in enumerate(groups.items()):
        best = max(group, key=lambda each: each.chosen_by).settings[option]
        for part in PARTS:
            found = {each.settings[option]: each for each in group if part in each.figures}
            x = [value for value in values if value in found]
            if x:
                y = [found[value].figures[part][metric] for value in x]
                ring = x.index(best) if best in x else None
                series.append(
                    _line(name, part, number, y, leaky=group[0].leaky, x=[float(v) for v in x], ring=ring)
                )
    chart = Chart("lines", series, option, metric.upper(), log_x=fits_log([float(v) for v in values]))
    return _against_figure(option, metric, caption, chart, by_x(series))


def _bars(
    option: str, metric: str, values: Sequence[Any], groups: Mapping[str, Sequence[Measured]], caption: str
) -> Figure:
    series = []
    for number, (name, group) in enumerate(groups.items()):
        found = {each.settings[option]: each for each in group}
        for part in PARTS:
            if all(value in found and part in found[value].figures for value in values):
                y = [found[value].figures[part][metric] for value in values]
                series.append(_line(name, part, number, y, leaky=group[0].leaky))
    categories = [_text(value) for value in values]
    rows: list[list[Cell]] = [
        [category, *(each.y[place] for each in series)] for place, category in enumerate(categories)
    ]
    return _against_figure(
        option, metric, caption, Chart("bars", series, option, metric.upper(), categories), rows
    )


def _line(
    name: str,
    part: str,
    number: int,
    y: list[float],
    *,
    leaky: bool,
    x: Sequence[float] = (),
    ring: int | None = None,
) -> Series:
    label = " · ".join(filter(None, (name, part)))
    return Series(
        label,
        y,
        x,
        colour=2 * number + (part != "validation"),
        key=f"by{number}-{part}",
        ring=ring,
        leaky=leaky,
    )


def _against_figure(option: str, metric: str, caption: str, chart: Chart, rows: list[list[Cell]]) -> Figure:
    return Figure(
        name=f"by-{option}-{metric.replace('@', '-')}",
        title=f"{metric.upper()} against {option}",
        caption=f"{caption} Test items decide nothing.",
        chart=chart,
        columns=(option, *(each.label for each in chart.series)),
        rows=rows,
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


Maker = Callable[[Sequence[Recorded]], Iterable[Figure]]

FIGURES: Mapping[str, Sequence[Maker]] = {
    "headline": (headline,),
    "by-option": (by_option,),
    "convergence": (convergence,),
    "activity": (activity,),
    "cost": (traffic, quality_by_traffic),
}
OF_A_TEST = {headline, by_option, activity}  # draw what a test gave, others what a run did on its data


def make_figures(
    runs: Sequence[Recorded], tell: Callable[[str], None] = lambda title: None
) -> dict[str, list[Figure]]:
    """All figures that these runs have, by the page's section they stand in; `tell` hears of each."""
    made: dict[str, list[Figure]] = {}
    for section, makers in FIGURES.items():
        made[section] = []
        for figure in (each for maker in makers for each in _make(maker, runs)):
            made[section].append(figure)
            tell(figure.title)
    return made


def _make(maker: Maker, runs: Sequence[Recorded]) -> Iterator[Figure]:
    """A figure has runs of one data set under one protocol, and what it draws of tests is of one test."""
    groups: dict[tuple[str, ...], list[Recorded]] = {}
    for run in runs:
        of_test = (run.tested,) if maker in OF_A_TEST else ()
        groups.setdefault((*run.split, *of_test), []).append(run)
    names: list[str] = []
    for some in groups.values():
        first = some[0]
        about = (first.dataset, first.config.protocol) if len({run.split for run in runs}) > 1 else ()
        for figure in maker(some):
            title = " · ".join((figure.title, ", ".join(about))) if about else figure.title
            name = "-".join((figure.name, *map(slug, about), *(("leaky",) if first.leaky else ())))
            number = names.count(name)
            names.append(name)
            yield replace(
                figure,
                name=f"{name}-{number}" if number else name,
                title=f"{title} (LEAKY)" if first.leaky else title,
            )
