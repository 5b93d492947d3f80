"""Read runs, draw their charts and write the page, with the charts as files beside it if wanted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from solera.core.errors import ConfigError, RunError
from solera.core.files import write_atomically
from solera.report.chart import Figure
from solera.report.figures import make_figures
from solera.report.page import make_page
from solera.report.recorded import Recorded, read_runs
from solera.runs.environment import package_version


class Report(NamedTuple):
    """A page that was written: the runs on it, and all files."""

    runs: list[Recorded]
    written: list[Path]


def write_report(
    runs: Sequence[Path],
    output: Path,
    *,
    figures: bool = False,
    use_data: bool = True,
    data_dir: Path | None = None,
    tell: Callable[[str], None] = lambda done: None,
) -> Report:
    """Write the page of these run folders; `tell` is called with each step that is done."""
    check_drawable(figures)
    read = read_runs(runs, data_dir=data_dir, use_data=use_data, tell=lambda path: tell(f"read {path}"))
    made = make_figures(read, lambda title: tell(f"drew {title}"))
    return Report(read, write_page(output, make_page(read, made), made if figures else {}))


def check_drawable(figures: bool) -> None:
    """Raise an error before any work if matplotlib, which chart files need, is missing."""
    if figures and package_version("matplotlib") is None:
        raise ConfigError("--figures needs matplotlib", "pip install 'solera[plots]'")


def write_page(page: Path, text: str, figures: Mapping[str, Sequence[Figure]]) -> list[Path]:
    """Write a page, and the given charts into a folder beside it; returns the files written."""
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(page, text)
        if not figures:
            return [page]
        from solera.report.picture import write_figures  # noqa: PLC0415 - needs matplotlib

        folder = page.with_name(f"{page.stem}-figures")
        return [page, *write_figures((figure for some in figures.values() for figure in some), folder)]
    except OSError as error:
        raise RunError(f"{page} cannot be written: {error.strerror}", "give another --output") from None
