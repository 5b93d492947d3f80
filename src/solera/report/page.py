"""The page: sections in their order, with styles and script inside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from solera.report import sections
from solera.report.chart import Figure
from solera.report.html import figure_html
from solera.report.recorded import Recorded

_HERE = Path(__file__).parent
# The page may load nothing from anywhere, whatever stands in it.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def make_page(runs: Sequence[Recorded], figures: Mapping[str, Sequence[Figure]]) -> str:
    """One HTML document. `figures` are those of `make_figures`, by section."""
    drawn = {name: figure_grid(some) for name, some in figures.items()}
    parts = [
        ("headline", "Figures", sections.headline_table(runs) + sections.missing(runs) + drawn["headline"]),
        ("by-option", "By setting", drawn["by-option"]),
        ("convergence", "Convergence", drawn["convergence"]),
        ("activity", "By activity", drawn["activity"]),
        ("cost", "Cost", sections.cost_table(runs) + drawn["cost"]),
        ("privacy", "Privacy", sections.privacy_table(runs) + sections.attacks_table(runs)),
        ("rounds", "Single rounds", drawn["rounds"]),
        ("tables", "Item tables", drawn["tables"]),
        ("configuration", "Configuration", _filtered("settings", sections.configuration(runs))),
        ("environment", "Environment", _filtered("machines", sections.machines(runs))),
    ]
    leaky = [run for run in runs if run.leaky]
    warning = f"{len(leaky)} of {len(runs)} runs: {sections.LEAKY}." if leaky else ""
    return document(_title(runs), parts, warning)


def document(title: str, sections_: Sequence[tuple[str, str, str]], warning: str = "") -> str:
    """A page of sections, each with its name, its title and its HTML; those that are empty are left out."""
    parts = [part for part in sections_ if part[2]]
    links = "".join(f'<a href="#{name}">{title}</a>' for name, title, _ in parts)
    body = "".join(
        f'<section id="{name}"><h2>{title}</h2>{inside}</section>' for name, title, inside in parts
    )
    banner = f'<p class="leaky banner">{escape(warning)}</p>' if warning else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_file('page.css')}</style></head><body>"
        f'<header><h1>{escape(title)}</h1><button id="theme" type="button">light / dark</button>'
        f"<nav>{links}</nav></header><main>{banner}{body}</main>"
        f'<div id="hint" role="status" hidden></div><script>{_file("page.js")}</script></body></html>\n'
    )


def _title(runs: Sequence[Recorded]) -> str:
    count = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    return f"{count} on {', '.join(dict.fromkeys(run.dataset for run in runs))}"


def figure_grid(figures: Sequence[Figure]) -> str:
    """Leaky figures begin a line of their own."""
    honest = [figure for figure in figures if not figure.name.endswith("-leaky")]
    leaky = [figure for figure in figures if figure.name.endswith("-leaky")]
    return "".join(
        f'<div class="grid">{"".join(map(figure_html, some))}</div>' for some in (honest, leaky) if some
    )


def _filtered(name: str, inside: str) -> str:
    """A table with a switch that leaves what differs."""
    if 'class="differs"' not in inside:
        return inside
    switch = f'<label><input type="checkbox" id="{name}"> only what differs</label>'
    return f'<div class="filtered">{switch}{inside}</div>'


def _file(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")
