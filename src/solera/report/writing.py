"""Read runs, draw their charts and write the page, with the charts as files beside it if wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from solera.core.errors import RunError
from solera.core.files import write_atomically
from solera.report.chart import Figure, as_csv
from solera.report.figures import make_figures
from solera.report.page import make_page
from solera.report.recorded import Recorded, read_runs
from solera.report.svg import draw


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
    read = read_runs(runs, data_dir=data_dir, use_data=use_data, tell=lambda path: tell(f"read {path}"))
    made = make_figures(read, lambda title: tell(f"drew {title}"))
    return Report(read, write_page(output, make_page(read, made), made if figures else {}))


def write_page(page: Path, text: str, figures: Mapping[str, Sequence[Figure]]) -> list[Path]:
    """Write a page, and the given charts into a folder beside it; returns the files written."""
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(page, text)
        if not figures:
            return [page]
        folder = page.with_name(f"{page.stem}-figures")
        folder.mkdir(exist_ok=True)
        return [page, *(file for some in figures.values() for each in some for file in _files(each, folder))]
    except OSError as error:
        raise RunError(f"{page} cannot be written: {error.strerror}", "give another --output") from None


def _files(figure: Figure, folder: Path) -> Iterator[Path]:
    """NAME.svg and NAME.csv of a figure."""
    for suffix, text in (
        ("svg", draw(figure.chart, figure.title, alone=True) + "\n"),
        ("csv", as_csv(figure)),
    ):
        path = folder / f"{figure.name}.{suffix}"
        path.write_text(text, encoding="utf-8")
        yield path
