"""Whether item tables use their dimensions: the singular values of the shared ones and of users' own."""

from __future__ import annotations

from collections.abc import Sequence

from solera.report.chart import Chart, Figure, by_x, series_of
from solera.report.figures.activity import QUARTERS
from solera.report.linear import information_abundance, singular_values
from solera.report.recorded import Recorded
from solera.report.tables import shared_table
from solera.runs.tables import SERVED, Table


def spectra(runs: Sequence[Recorded]) -> list[Figure]:
    """The singular values of the shared tables, the largest of each being 1."""
    found = [(run, table) for run in runs if (table := shared_table(run)) is not None and table.any()]
    shown = [(run, singular_values(table)) for run, table in found]
    return _figure("spectra", "Singular values of the shared item table", "Relative to the largest.", shown)


def own_spectra(runs: Sequence[Recorded]) -> list[Figure]:
    """The same of the tables that users are served with, of the least and of the most active."""
    made = []
    for name, quarter, title in (("least", 0, QUARTERS[0]), ("most", -1, QUARTERS[-1])):
        shown = [(run, values[quarter]) for run in runs if (values := by_quarter(run)) is not None]
        about = (
            f"Of the tables that users of the {title} quarter are served with; relative to the largest, "
            "mean over up to eight users."
        )
        made += _figure(f"spectra-{name}-active", f"Singular values, {title} users", about, shown)
    return made


def by_quarter(run: Recorded) -> Table | None:
    """Singular values of served tables, the largest being 1: means over the users of each quarter, [4, d]."""
    values = run.users.spectra.get(SERVED) if run.users else None
    if values is None or len(values) < len(QUARTERS) or not values[:, 0].all():
        return None
    quarters = len(QUARTERS)
    even = (values / values[:, :1])[: len(values) // quarters * quarters]
    means: Table = even.reshape(quarters, -1, values.shape[1]).mean(1)
    return means


def _figure(name: str, title: str, caption: str, shown: Sequence[tuple[Recorded, Table]]) -> list[Figure]:
    if not shown:
        return []
    series = [
        series_of(run, [float(value / values[0]) for value in values], x=list(range(1, len(values) + 1)))
        for run, values in shown
    ]
    abundance = ", ".join(
        f"{run.title} {information_abundance(values):.1f} of {len(values)}" for run, values in shown
    )
    return [
        Figure(
            name=name,
            title=title,
            caption=f"{caption} Information abundance: {abundance}.",
            chart=Chart("lines", series, "number", "singular value / largest"),
            columns=("number", *(each.label for each in series)),
            rows=by_x(series),
        )
    ]
