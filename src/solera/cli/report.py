"""solera report: several runs on one self-contained HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from solera.cli.options import DataDir
from solera.cli.output import Answer, Line, answers
from solera.cli.progress import stage_progress


@answers
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Folders of finished runs.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="HTML file to write.")] = Path("report.html"),
    figures: Annotated[
        bool, typer.Option("--figures", help="Also write every figure as SVG and CSV next to the page.")
    ] = False,
    no_data: Annotated[
        bool,
        typer.Option(
            "--no-data", help="Skip the parts that need the data set: confidence intervals, single users."
        ),
    ] = False,
    data_dir: DataDir = None,
) -> Answer:
    """Write an HTML page about one or more runs: figures, convergence, cost, privacy, configuration.

    Example: solera report runs/fedmf-ml-100k-strict-s0 -o report.html

    Example: solera report runs/* -o report.html --figures
    """
    from solera.report import write_report

    with stage_progress("report") as tell:
        read, written = write_report(
            runs, output, figures=figures, use_data=not no_data, data_dir=data_dir, tell=tell
        )
    document = [
        {"run": run.label, "leaky": run.leaky, "path": str(run.path), "intervals": run.users is not None}
        for run in read
    ]
    said = [
        Line(f"{run.title}: no intervals, {run.without_users}", "yellow") for run in read if run.users is None
    ]
    more = f" and {len(written) - 1} files of figures beside it" if figures else ""
    said.append(Line(f"report: {output} ({output.stat().st_size / 1e6:.2f} MB){more}"))
    return Answer({"written": [str(path) for path in written], "runs": document}, said)
