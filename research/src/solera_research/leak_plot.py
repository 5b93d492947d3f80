"""The leak in pictures: groups of items in the users' lists, and the counter among published figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

mpl.rcParams["svg.hashsalt"] = "solera"  # the same picture is the same file
mpl.rcParams["svg.fonttype"] = "none"

_APART = 6.5  # least distance of two labels, in places


class _Line(NamedTuple):
    label: str
    colour: str  # of Okabe and Ito, told apart by everybody
    width: float = 1.8
    style: str = "-"


LINES = {
    "train": _Line("training items", "#777777"),
    "held_out": _Line("HELD-OUT ITEM", "#d55e00", 4.0),
    "never_drawn": _Line("never drawn as negative", "#0072b2", style="--"),
    "drawn": _Line("drawn as negative", "#0072b2"),
}


class _Marker(NamedTuple):
    label: str
    colour: str
    sign: str
    size: float
    filled: bool = True
    across: float = 0.14  # from the middle of the data set


MARKERS = {
    "popularity": _Marker("popularity", "#009e73", "^", 6, across=0.36),
    "counter": _Marker("counter: has learned nothing", "#d55e00", "o", 10),
    "law": _Marker("the same by formula", "#000000", "o", 15, filled=False),
    "counter, strict": _Marker("counter under strict", "#0072b2", "s", 7),
}


def draw_counter(rows: Sequence[Mapping[str, Any]], stem: Path) -> list[Path]:
    """The counter and every published figure, by data set, from what `count_leak` returns."""
    figure = Figure(figsize=(12, 5.4), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, (metric, name) in zip(panels, (("hr@10", "HR@10"), ("ndcg@10", "NDCG@10")), strict=True):
        for place, row in enumerate(rows):
            first = place == 0  # of every kind one, for the legend
            figures = sorted(each[metric] for each in row["published"])
            across = [place - 0.28 + 0.09 * (number % 3 - 1) for number in range(len(figures))]
            axes.plot(across, figures, ".", color="#999999", label="published" if first else None)
            for key, marker in MARKERS.items():
                axes.plot(
                    place + marker.across,
                    row[key][metric],
                    marker.sign,
                    color=marker.colour,
                    markersize=marker.size,
                    fillstyle="full" if marker.filled else "none",
                    label=marker.label if first else None,
                )
        axes.set_title(f"{name} against 99 negatives", loc="left")
        axes.set_xticks(range(len(rows)), [row["dataset"] for row in rows], rotation=20, ha="right")
        axes.set_ylim(-0.02, 1.04)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#eeeeee")
        axes.set_axisbelow(True)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    return _saved(figure, stem)


def draw(found: Mapping[str, Any], stem: Path) -> list[Path]:
    """A PNG and an SVG beside each other, from what `show_leak` returns."""
    figure = Figure(figsize=(11, 5), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True, gridspec_kw={"wspace": 0.04})
    _panel(left, found, "paper")
    _panel(right, found, "strict")
    left.set_ylabel("mean place in the users' lists")
    left.set_yticks([0, 50, 100], ["bottom", "middle", "top"])
    return _saved(figure, stem)


def _saved(figure: Figure, stem: Path) -> list[Path]:
    paths = []
    for suffix, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
        paths.append(stem.with_name(f"{stem.name.removesuffix('.png').removesuffix('.svg')}.{suffix}"))
        figure.savefig(paths[-1], metadata=metadata, dpi=150)
    return paths


def _panel(axes: Axes, found: Mapping[str, Any], protocol: str) -> None:
    course, rounds = found[protocol], found["rounds"]
    ends = {}
    for key, line in LINES.items():
        points = [(x, each[key]) for x, each in enumerate(course["places"]) if each[key] is not None]
        if not points:
            continue
        xs, ys = zip(*points, strict=True)
        axes.plot(
            xs, ys, color=line.colour, linewidth=line.width, linestyle=line.style, solid_capstyle="round"
        )
        if xs[-1] == rounds:
            ends[key] = ys[-1]
    for key, y in _spread(ends).items():
        line = LINES[key]
        weight = "bold" if key == "held_out" else "normal"
        axes.text(rounds * 1.03, y, line.label, color=line.colour, va="center", weight=weight)
    _title(axes, protocol, course)
    axes.set_xlim(0, rounds * 1.5)
    axes.set_ylim(0, 103)
    axes.set_xticks([0, rounds])
    axes.set_xlabel("rounds of training", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines["bottom"].set_bounds(0, rounds)


def _title(axes: Axes, protocol: str, course: Mapping[str, Any]) -> None:
    colour = "firebrick" if course["leaky"] else "black"
    name = f"{protocol} · LEAKY" if course["leaky"] else protocol
    said = "is never" if course["leaky"] else "may be"
    hits = f"HR@10 {course['hr@10']['sampled99']:.2f}; chance is 0.10"
    about = f"the held-out item {said} drawn as a negative\n{hits}"
    for text, y, size, weight in ((name, 1.14, 14, "bold"), (about, 1.02, 11, "normal")):
        axes.text(0, y, text, transform=axes.transAxes, color=colour, size=size, weight=weight)


def _spread(ends: Mapping[str, float]) -> dict[str, float]:
    """Heights of labels near the ends of their lines, from the top down, none upon another."""
    placed: dict[str, float] = {}
    ceiling = 100.0
    for key, y in sorted(ends.items(), key=lambda end: -end[1]):
        placed[key] = min(y, ceiling)
        ceiling = placed[key] - _APART
    return placed
