"""solera paper: the tables and figures of five papers, one command each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from solera.cli.bench import Jobs, Replace, RetryFailed, ended
from solera.cli.lazy import Pluggable
from solera.cli.options import (
    DataDir,
    OptionalData,
    Options,
    Threads,
    parse_pairs,
    takes_settings,
)
from solera.cli.output import Answer, Line, Table, answers, err, help_if_alone
from solera.cli.progress import run_shown, step_progress

if TYPE_CHECKING:
    from solera.study.runner import Plan
    from solera_research.papers import Paper, PaperTable
    from solera_research.papers.cells import Cell


class _Paper(Pluggable):
    prefix = "paper."
    renamed: ClassVar = {"list": "show"}  # commands of 0.2, which work until 0.4


app = typer.Typer(
    cls=_Paper,
    help="Run the tables and figures of PFedRec, FedRAP, PFedCLR, FedEM and PLGC, and compare with them.",
    invoke_without_command=True,
)
app.callback()(help_if_alone)


def _tables(incomplete: str) -> list[str]:
    from solera_research.papers import papers

    names = (f"{key}/{each.id}" for key, paper in papers().items() for each in paper.table)
    return [name for name in names if name.startswith(incomplete)]


_NAME = typer.Argument(
    help="A table or figure, as in pfedrec/table-1; `solera paper show` lists them.", autocompletion=_tables
)
DataName = Annotated[
    str | None, typer.Option("--data", help="Only this data set, by Solera's name or the paper's.")
]
Only = Annotated[str | None, typer.Option("--only", help="Only this row, as the paper names it.")]
Records = Annotated[
    Path | None,
    typer.Option(help="Table of the records (default: experiments/records/papers.parquet)."),
]


@app.command()
@answers
def run(
    name: Annotated[str, _NAME],
    data: DataName = None,
    only: Only = None,
    seeds: Annotated[int, typer.Option(help="Seeds of every cell: 0, 1, 2, …", min=1)] = 1,
    jobs: Jobs = None,
    plan: Annotated[bool, typer.Option("--plan", help="List the missing runs and start none.")] = False,
    retry_failed: RetryFailed = False,
    replace: Replace = False,
    records: Records = None,
    data_dir: DataDir = None,
) -> Answer:
    """Run the missing cells of a table or figure. After an interruption, the same command continues.

    Example: solera paper run fedrap/table-3 --data ml-100k --only FedMF

    Example: solera paper run pfedrec/table-1 --seeds 5 --plan
    """
    from solera.study.runner import make_plan
    from solera_research.papers import find_table
    from solera_research.papers.cells import RECORDS, Stored, missing_runs, select

    paper, found = find_table(name)
    _check_runs(paper, found)
    table = records or RECORDS
    chosen = select(paper, found, data, only, data_dir)
    matrix = missing_runs(chosen, Stored(table), seeds, table)
    made = make_plan(matrix, retry_failed=retry_failed, replace=replace)
    left_out = [cell for cell in chosen if cell.problem]
    if plan:
        return _planned(made, left_out)
    err.print(_plan_line(made, left_out), highlight=False)
    status = run_shown(matrix, made, "records", jobs=jobs, data_dir=data_dir)
    return ended(matrix, status, f"solera paper show {paper.key}/{found.id}")


@app.command()
@answers
def show(
    name: Annotated[str | None, _NAME] = None,
    data: DataName = None,
    only: Only = None,
    records: Records = None,
    data_dir: DataDir = None,
) -> Answer:
    """Show a table or figure: published figures, ours, and the difference. Without a name, list them all.

    A cell is one row on one data set. The list has the number of cells with a record; with --json also of
    those that are published, and that can be run here.

    Example: solera paper show

    Example: solera paper show pfedrec/table-1 --data ml-100k
    """
    from solera_research.papers import find_table
    from solera_research.papers.cells import RECORDS, Stored, select
    from solera_research.papers.tables import document, grids, results

    if name is None:
        return _listed(records, data_dir)
    paper, found = find_table(name)
    chosen = select(paper, found, data, only, data_dir) if found.kind == "runs" else []
    compared = results(chosen, Stored(records or RECORDS))
    made = grids(paper, found, compared, data_dir)
    title = f"{paper.name}, {found.id.replace('-', ' ')}: {found.title}"
    said: list[Table | Line | str] = [
        Table(
            f"{title} · {grid.title}" if grid.title else title,
            grid.head,
            grid.rows,
            leaky=found.kind == "runs",
        )
        for grid in made
    ]
    lines = (*([] if made else [title]), found.about, *found.commands)
    said += [Line(line) for line in lines if line]
    if any(result.state == "not run" for result in compared):
        said.append(Line(f"next: solera paper run {paper.key}/{found.id}", "dim"))
    fields = found.model_dump(mode="json", include={"title", "kind", "ranking", "about", "commands"})
    numbers = [] if chosen else [grid._asdict() for grid in made]
    cells = [document(result) for result in compared]
    return Answer({"table": f"{paper.key}/{found.id}", **fields, "cells": cells, "grids": numbers}, said)


def _listed(records: Path | None, data_dir: Path | None) -> Answer:
    from solera_research.papers import papers
    from solera_research.papers.cells import RECORDS, Stored, cells
    from solera_research.papers.tables import count, results

    stored = Stored(records or RECORDS)
    rows = [
        {
            "table": f"{paper.key}/{each.id}",
            "title": each.title,
            "kind": each.kind,
            **count(results(list(cells(paper, each, data_dir)), stored))._asdict(),
        }
        for paper in papers().values()
        for each in paper.table
    ]
    listed = (
        (row["table"], f"{row['recorded']} of {row['cells']}" if row["cells"] else None, row["title"])
        for row in rows
    )
    return Answer(
        rows,
        [
            Table("Tables and figures of five papers", ("table", "recorded", "title"), listed),
            Line("next: solera paper show pfedrec/table-1", "dim"),
        ],
    )


@app.command()
@answers
def summary(records: Records = None) -> Answer:
    """Count the printed HR@10 and NDCG@10 that were reproduced, and say why others were not.

    A run counts once, however many rows and tables it serves, by where its settings come from. A cell is one
    row of a table on one data set: a figure that a paper prints in two tables counts twice. The last column
    counts cells that cannot be run, because their data set is not at hand for example.

    Example: solera paper summary
    """
    from solera_research.papers import papers
    from solera_research.papers.cells import RECORDS, Stored
    from solera_research.papers.summary import CLOSE, all_results, document, left_out, total, unique_runs
    from solera_research.papers.summary import summary as summarize
    from solera_research.papers.tables import shown_differences

    found = list(all_results(papers().values(), Stored(records or RECORDS)))
    lines, outside = summarize(found)
    near = f"within {CLOSE} in HR@10 and NDCG@10"
    head = ("paper", "data set", "cells", "run", "within", "outside", "not run", "cannot")
    said: list[Table | Line | str] = [
        Table(
            f"Unique runs, and how many are {near} in all their cells",
            ("settings", "run", "within", "outside", "not run", "not attempted"),
            unique_runs(found),
            leaky=True,
        ),
        Table(f"Published cells, and how many are {near}", head, [*lines, total(lines)], leaky=True),
    ]
    for each in outside:
        where = f"{each.table}, {each.row}, {each.dataset}: {shown_differences(each.difference)}."
        said.append(f"{where} {each.why}")
    said += [
        f"not attempted: {paper}, {what} ({cells} cells). {why}"
        for paper, what, cells, why in left_out(found)
    ]
    said.append(Line("next: solera paper run pfedrec/table-1 --plan", "dim"))
    return Answer(document(found), said)


@app.command()
@answers
@takes_settings("protocol", "rounds", "seed", "min_interactions", "columns")
def draw(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN…", help="Methods, with plug-ins as in fedmf+plgc, or names of presets."),
    ],
    data: OptionalData = None,
    option: Options = None,
    output: Annotated[Path, typer.Option(help="Folder of the figures.")] = Path("figures"),
    threads: Threads = 0,
    data_dir: DataDir = None,
    *,
    settings: dict[str, Any],
) -> Answer:
    """Train, and draw the papers' figures of single rounds and of users' item tables, as SVG.

    Example: solera paper draw pfedrec --data ml-100k --rounds 10

    Example: solera paper draw local fedmf --data ml-100k --rounds 10

    Example: solera paper draw paper:fedmf@pfedclr/ml-100k paper:pfedclr/ml-100k
    """
    from solera.runs.presets import run_settings
    from solera_research.figures.course import train
    from solera_research.figures.draw import draw as drawn
    from solera_research.figures.draw import write

    courses = []
    for run_ in runs:
        preset = run_ if ":" in run_ else None
        method, *plugins = run_.split("+")
        config = run_settings(
            None if preset else method,
            None if preset else data,
            preset=preset,
            plugins=[] if preset else plugins,
            options=parse_pairs(option or [], "-o learning_rate=0.05"),
            patience=0,
            **settings,
        )
        interactions = config.load_data(data_dir)
        with step_progress(f"{config.full_method} on {interactions.name}", config.rounds) as update:
            course = train(
                config,
                interactions,
                threads=threads,
                on_round=lambda done, loss: update(done, f"loss {loss:.4f}"),
            )
        courses.append(course)
    written = write(drawn(courses), output)
    return Answer({"written": [str(path) for path in written]}, [Line(f"{len(written)} figures in {output}")])


def _check_runs(paper: Paper, found: PaperTable) -> None:
    from solera.core.errors import ConfigError

    if found.kind != "runs":
        hint = f"solera paper show {paper.key}/{found.id} " + (
            "gives the commands" if found.commands else "shows it"
        )
        raise ConfigError(f"{paper.key}/{found.id} has no cells to run: {found.title}", hint)


def _plan_line(plan: Plan, left_out: list[Cell]) -> str:
    reasons = sorted({cell.problem[1] for cell in left_out if cell.problem})
    text = f"{len(plan.todo)} run{'s' if len(plan.todo) != 1 else ''} to make"
    if plan.failed:
        text += f", {len(plan.failed)} failed before"
    if left_out:
        text += f"; {len(left_out)} cells are left out ({'; '.join(reasons)})"
    return text


def _planned(plan: Plan, left_out: list[Cell]) -> Answer:
    todo = [
        {
            "run": entry.label,
            "dataset": entry.config.dataset,
            "seed": entry.config.seed,
            "rounds": getattr(entry.config, "rounds", None),
        }
        for entry in plan.todo
    ]
    cells = [
        {"row": cell.row, "column": cell.column, "why": cell.problem[1]} for cell in left_out if cell.problem
    ]
    columns = {name: name for name in ("run", "dataset", "seed", "rounds")}
    return Answer(
        {"runs": todo, "left_out": cells},
        [Table.of("Missing runs", todo, columns), _plan_line(plan, left_out)],
    )
