"""Bars of full-ranking NDCG@10, one picture per data set (matplotlib, the extra `plots`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from solera.bench.blocks import Block, Row
from solera.bench.statistics import Interval, interval

FEDERATED, CENTRAL = "#2a6f97", "#e09f3e"
HATCH = "///"
_BAR, _AROUND = 0.28, 0.9  # inches

mpl.rcParams["svg.hashsalt"] = "solera"  # the same picture is the same file
mpl.rcParams["svg.fonttype"] = "none"


def make_plots(all_blocks: Sequence[Block], folder: Path) -> list[Path]:
    """A PNG and an SVG per data set, one panel in it per protocol."""
    paths = []
    for dataset in dict.fromkeys(block.dataset for block in all_blocks):
        figure = _figure([block for block in all_blocks if block.dataset == dataset])
        folder.mkdir(parents=True, exist_ok=True)
        for suffix, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
            paths.append(folder / f"{dataset}.{suffix}")
            figure.savefig(paths[-1], metadata=metadata, dpi=150)
    return paths


def _figure(panels: Sequence[Block]) -> Figure:
    heights = [_AROUND + _BAR * len(block.rows) for block in panels]
    figure = Figure(figsize=(7.5, sum(heights)), layout="constrained")
    grid = figure.subplots(len(panels), 1, sharex=True, squeeze=False, height_ratios=heights)
    for axes, block in zip(grid[:, 0], panels, strict=True):
        _panel(axes, block)
    grid[-1, 0].set_xlabel("NDCG@10, full ranking; 95 % interval over users")
    named = (("federated", FEDERATED), ("centralized", CENTRAL))
    handles = [Patch(color=colour, label=name) for name, colour in named]
    figure.legend(handles=handles, loc="outside upper right", ncols=2, frameon=False)
    return figure


def _panel(axes: Axes, block: Block) -> None:
    found = [_figure_of(row) for row in block.rows]
    means = [each.mean for each in found]
    below = [max(0.0, each.mean - each.low) for each in found]  # rounding may leave less than nothing
    above = [max(0.0, each.high - each.mean) for each in found]
    axes.barh(
        range(len(found)),
        means,
        xerr=[below, above],
        color=[CENTRAL if row.central else FEDERATED for row in block.rows],
        hatch=HATCH if block.leaky else None,
        edgecolor="white",
        error_kw={"elinewidth": 1, "capsize": 2},
    )
    labels = [f"{row.label} (leaky)" if block.leaky else row.label for row in block.rows]
    axes.set_yticks(range(len(found)), labels)
    axes.invert_yaxis()
    axes.set_title(block.title, loc="left", color="firebrick" if block.leaky else "black")
    axes.spines[["top", "right"]].set_visible(False)


def _figure_of(row: Row) -> Interval:
    """The mean with its interval over users, or alone where single users are not known."""
    values = row.with_longest_history
    return Interval(row.ndcg, row.ndcg, row.ndcg) if values is None else interval(values)
