"""Figures against a setting: of runs, or of the trials of a sweep, that differ in it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from solera.report.chart import Cell, Chart, Figure, Series, by_x, fits_log
from solera.report.content import flatten
from solera.report.recorded import Recorded

METRICS = ("ndcg@10", "hr@10")
PARTS = ("validation", "test")
MOST = 4  # lines of other settings, each for validation and for test items; beyond them, the best is shown
WHO = ("method", "plugins", "dataset", "protocol", "seed")  # make another run, not another setting


@dataclass(frozen=True)
class Measured:
    """Settings and figures in full ranking; `figures` has "validation" and may have "test"."""

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
            {part: getattr(run.result, part).full for part in PARTS if run.result},
            run.leaky,
        )
        for group in several
        for run, settings in group
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
                    _series(name, part, number, y, leaky=group[0].leaky, x=[float(v) for v in x], ring=ring)
                )
    chart = Chart("lines", series, option, metric.upper(), log_x=fits_log([float(v) for v in values]))
    return _figure(option, metric, caption, chart, by_x(series))


def _bars(
    option: str, metric: str, values: Sequence[Any], groups: Mapping[str, Sequence[Measured]], caption: str
) -> Figure:
    series = []
    for number, (name, group) in enumerate(groups.items()):
        found = {each.settings[option]: each for each in group}
        for part in PARTS:
            if all(value in found and part in found[value].figures for value in values):
                y = [found[value].figures[part][metric] for value in values]
                series.append(_series(name, part, number, y, leaky=group[0].leaky))
    categories = [_text(value) for value in values]
    rows: list[list[Cell]] = [
        [category, *(each.y[place] for each in series)] for place, category in enumerate(categories)
    ]
    return _figure(option, metric, caption, Chart("bars", series, option, metric.upper(), categories), rows)


def _series(
    name: str,
    part: str,
    number: int,
    y: list[float],
    *,
    leaky: bool,
    x: Sequence[float] = (),
    ring: int | None = None,
) -> Series:
    label = " · ".join(filter(None, (name, f"{part} items")))
    return Series(
        label,
        y,
        x,
        colour=2 * number + PARTS.index(part),
        key=f"by{number}-{part}",
        ring=ring,
        leaky=leaky,
    )


def _figure(option: str, metric: str, caption: str, chart: Chart, rows: list[list[Cell]]) -> Figure:
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
