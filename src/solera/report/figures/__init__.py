"""The figures of a report, one small function each.

A figure is made by a function of the runs, which returns none where they have nothing to show. A new one: a
function in a file here, entered below in the place where it shall stand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from solera.report.chart import Figure
from solera.report.figures.activity import activity
from solera.report.figures.by_option import by_option
from solera.report.figures.convergence import convergence
from solera.report.figures.cost import quality_by_traffic, traffic
from solera.report.figures.headline import headline
from solera.report.recorded import Recorded

Maker = Callable[[Sequence[Recorded]], Iterable[Figure]]

FIGURES: Mapping[str, Sequence[Maker]] = {
    "headline": (headline,),
    "by-option": (by_option,),
    "convergence": (convergence,),
    "activity": (activity,),
    "cost": (traffic, quality_by_traffic),
}
APART = {headline, by_option, convergence, activity, quality_by_traffic}  # leaky runs in figures of their own


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
    """Leaky figures share no axis with honest ones."""
    if maker not in APART:
        yield from maker(runs)
        return
    yield from maker([run for run in runs if not run.leaky])
    for figure in maker([run for run in runs if run.leaky]):
        yield replace(figure, name=f"{figure.name}-leaky", title=f"{figure.title} (LEAKY)")
