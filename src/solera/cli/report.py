"""solera report: runs beside each other, on one page that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from solera.cli.data import DataDir
from solera.cli.output import Json, out, print_json
from solera.cli.progress import stage_progress

if TYPE_CHECKING:
    from solera.report.chart import Figure


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Folders of runs.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Where to write the page.")] = Path(
        "report.html"
    ),
    figures: Annotated[
        bool, typer.Option("--figures", help="Write every figure as SVG, PNG and CSV beside the page too.")
    ] = False,
    no_data: Annotated[
        bool, typer.Option("--no-data", help="Leave out what needs the data set: intervals, single users.")
    ] = False,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """One HTML page of one or more runs: figures, convergence, cost, privacy, configuration.

    Example: solera report runs/fedmf-ml-100k-strict-s0 -o report.html

    Example: solera report runs/* -o report.html --figures
    """
    from solera.core.errors import RunError
    from solera.report import make_page, read_runs
    from solera.report.figures import make_figures

    check_drawable(figures)
    with stage_progress("report") as tell:
        read = read_runs(
            runs, data_dir=data_dir, use_data=not no_data, tell=lambda path: tell(f"read {path}")
        )
        made = make_figures(read, lambda title: tell(f"drew {title}"))
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        written = write_page(output, make_page(read, made), made if figures else {})
    except OSError as error:
        raise RunError(f"{output} cannot be written: {error.strerror}", "give another -o") from None
    if json:
        shown = [
            {"run": run.label, "leaky": run.leaky, "path": str(run.path), "intervals": run.users is not None}
            for run in read
        ]
        print_json({"written": [str(path) for path in written], "runs": shown})
        return
    for run in read:
        if run.users is None:
            out.print(
                f"{run.title}: no intervals, {run.without_users}",
                style="yellow",
                highlight=False,
                markup=False,
            )
    size = output.stat().st_size / 1e6
    more = f" and {len(written) - 1} files of figures beside it" if figures else ""
    out.print(f"report: {output} ({size:.2f} MB){more}", highlight=False)


def check_drawable(figures: bool) -> None:
    """Figures as files need what draws them: an error before any work is done."""
    from solera.core.errors import ConfigError
    from solera.runs.environment import package_version

    if figures and package_version("matplotlib") is None:
        raise ConfigError("--figures needs matplotlib", "pip install 'solera[plots]'")


def write_page(page: Path, text: str, figures: Mapping[str, Sequence[Figure]]) -> list[Path]:
    """The page, and beside it the figures that are given; what was written."""
    from solera.core.files import write_atomically

    write_atomically(page, text)
    if not figures:
        return [page]
    from solera.report.picture import write_figures

    folder = page.with_name(f"{page.stem}-figures")
    return [page, *write_figures((figure for some in figures.values() for figure in some), folder)]
