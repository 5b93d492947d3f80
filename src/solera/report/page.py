"""The page: sections in their order, with styles and script inside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from solera.core.text import render
from solera.report import sections
from solera.report.chart import Figure
from solera.report.content import Section
from solera.report.recorded import Recorded

_TEMPLATES = Path(__file__).parent / "templates"


def make_page(runs: Sequence[Recorded], figures: Mapping[str, Sequence[Figure]]) -> str:
    """One HTML document. `figures` are those of `make_figures`, by section."""
    privacy = sections.privacy_table(runs)
    parts = [
        Section(
            "headline",
            "Figures",
            figures["headline"],
            [sections.headline_table(runs)],
            sections.missing(runs),
        ),
        Section("by-option", "By setting", figures["by-option"]),
        Section("convergence", "Convergence", figures["convergence"]),
        Section("activity", "By activity", figures["activity"]),
        Section("cost", "Cost", figures["cost"], [sections.cost_table(runs)]),
        Section("privacy", "Privacy", tables=[privacy] if privacy else []),
        Section("configuration", "Configuration", tables=[sections.configuration(runs)]),
        Section("environment", "Environment", tables=[sections.machines(runs)]),
    ]
    leaky = [run for run in runs if run.leaky]
    warning = f"{len(leaky)} of {len(runs)} runs: {sections.LEAKY}." if leaky else ""
    return document(_title(runs), parts, warning)


def document(title: str, parts: Sequence[Section], warning: str = "") -> str:
    """A page of sections; those that are empty are left out."""
    return render(
        "solera.report",
        "page.html",
        title=title,
        warning=warning,
        sections=[part for part in parts if part.tables or part.figures],
        style=_file("page.css"),
        script=_file("page.js"),
    )


def _title(runs: Sequence[Recorded]) -> str:
    count = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    return f"{count} on {', '.join(dict.fromkeys(run.dataset for run in runs))}"


def _file(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")
