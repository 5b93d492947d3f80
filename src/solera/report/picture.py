"""Figures as files: SVG as on the page, PNG by matplotlib (the extra `plots`), and their data as CSV."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure as Canvas

from solera.report.chart import Chart, Figure, Series, as_csv, short
from solera.report.heat import NEGATIVE, POSITIVE, depths
from solera.report.svg import COLOURS, PALETTE, draw

LEAKY = "firebrick"


def write_figures(figures: Iterable[Figure], folder: Path) -> list[Path]:
    """NAME.svg, NAME.png and NAME.csv of every figure."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for figure in figures:
        svg, png, data = (folder / f"{figure.name}.{suffix}" for suffix in ("svg", "png", "csv"))
        svg.write_text(draw(figure.chart, figure.title, alone=True) + "\n", encoding="utf-8")
        data.write_text(as_csv(figure), encoding="utf-8")
        paint(figure).savefig(png, dpi=150, metadata={"Software": None})
        written += [svg, png, data]
    return written


def paint(figure: Figure) -> Canvas:
    """The chart by matplotlib."""
    chart = figure.chart
    canvas = Canvas(figsize=(6.4, 4.2), layout="constrained")
    axes = canvas.subplots()
    axes.set(xlabel=chart.x_label, ylabel=chart.y_label)
    colour = LEAKY if "(LEAKY)" in figure.title else "black"
    axes.set_title(figure.title, loc="left", fontsize=11, color=colour)
    if chart.kind == "heat":
        _heat(axes, chart)
        return canvas
    if chart.log_x:
        axes.set_xscale("log")
    if chart.log_y:
        axes.set_yscale("log")
    for place, each in enumerate(chart.series):
        (_bars if chart.kind == "bars" else _marks)(axes, chart, each, place)
    if chart.kind == "bars":
        axes.set_xticks(range(len(chart.categories)), chart.categories)
    axes.spines[["top", "right"]].set_visible(False)
    legend = canvas.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    for text, each in zip(legend.get_texts(), chart.series, strict=True):
        text.set_color(LEAKY if each.leaky else "black")
    return canvas


def _heat(axes: Axes, chart: Chart) -> None:
    """Rows as on the page: the first on top, every cell as deep as there."""
    depth, (low, high) = depths(chart)
    names = [PALETTE[NEGATIVE], "white", PALETTE[POSITIVE]] if low < 0 else ["white", PALETTE[POSITIVE]]
    signed = [[depth(y) * (-1 if y < 0 else 1) for y in each.y] for each in chart.series]
    image = axes.imshow(
        signed,
        cmap=LinearSegmentedColormap.from_list("heat", names),
        vmin=-1 if low < 0 else 0,
        vmax=1,
        aspect="auto",
        interpolation="none",
    )
    bar = axes.figure.colorbar(image, ax=axes, ticks=[-1 if low < 0 else 0, 1])
    bar.ax.set_yticklabels([short(low), short(high)])
    for axis, labels in (
        (axes.xaxis, chart.categories),
        (axes.yaxis, [each.label for each in chart.series]),
    ):
        places = sorted({0, len(labels) // 2, len(labels) - 1})
        axis.set_ticks(places, [labels[place] for place in places])


def _colour(each: Series) -> str:
    return PALETTE[each.colour % COLOURS]


def _marks(axes: Axes, chart: Chart, each: Series, place: int) -> None:
    if chart.kind == "points" or len(each.x) == 1:
        axes.scatter(each.x, each.y, s=9, alpha=0.6, color=_colour(each), label=each.label, zorder=place)
    else:
        linestyle = "--" if each.leaky else "-"
        axes.plot(each.x, each.y, color=_colour(each), linestyle=linestyle, label=each.label)
    if each.ring is not None:
        at = each.ring
        axes.plot(each.x[at], each.y[at], "o", markerfacecolor="none", color=_colour(each))


def _bars(axes: Axes, chart: Chart, each: Series, place: int) -> None:
    width = 1 / (len(chart.series) + 0.8)
    middles = [number + (place - (len(chart.series) - 1) / 2) * width for number in range(len(each.y))]
    around = None
    if each.bounds:
        pairs = list(zip(each.y, each.bounds, strict=True))
        around = [
            [max(0.0, y - low) for y, (low, _) in pairs],
            [max(0.0, high - y) for y, (_, high) in pairs],
        ]
    hatch = "///" if each.leaky else None
    axes.bar(middles, each.y, width * 0.92, yerr=around, color=_colour(each), hatch=hatch, label=each.label)
