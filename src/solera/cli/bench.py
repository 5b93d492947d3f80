"""solera bench: runs of whole matrices, and their tables."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from solera.cli.lazy import Pluggable
from solera.cli.options import DataDir
from solera.cli.output import Answer, Line, Table, answers, help_if_alone
from solera.cli.progress import run_shown

if TYPE_CHECKING:
    from solera.study.matrix import Matrix
    from solera.study.runner import Plan, Status


class _Bench(Pluggable):
    prefix = "bench."


app = typer.Typer(cls=_Bench, help="Run benchmarks and make their tables.", invoke_without_command=True)
app.callback()(help_if_alone)


Matrix_ = Annotated[
    Path, typer.Argument(help="TOML file of the benchmark; docs/guides/studies.md shows one.")
]
Jobs = Annotated[
    int | None, typer.Option(help="Runs in parallel, each with one thread (default: one per core).", min=1)
]
RetryFailed = Annotated[bool, typer.Option("--retry-failed", help="Repeat runs that failed before.")]
Replace = Annotated[bool, typer.Option("--replace", help="Replace records made with other settings.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check the matrix and list what would be run.")]


@app.command()
@answers
def run(
    matrix: Matrix_,
    jobs: Jobs = None,
    tune_only: Annotated[
        bool, typer.Option("--tune-only", help="Tune the methods in the `tune` tables, without final runs.")
    ] = False,
    retry_failed: RetryFailed = False,
    replace: Replace = False,
    dry_run: DryRun = False,
    data_dir: DataDir = None,
) -> Answer:
    """Run the missing runs of a matrix. After an interruption, the same command continues.

    Methods in `tune` tables with seeds are tuned first, with the same budget for each, which needs the extra
    `tune`. Settings are judged on validation items alone.

    Example: solera bench run matrix.toml --jobs 2

    Example: solera bench run matrix.toml --tune-only
    """
    from solera.study.matrix import Tuning, read_matrix, read_tuning
    from solera.study.runner import make_plan

    if tune_only:
        _check_optuna()
        asked = read_tuning(matrix)
        following = f"solera bench tuned --tuning {asked.tuning}"
    else:
        asked = read_matrix(matrix, data_dir)
        if any(isinstance(entry, Tuning) for entry in asked.entries):
            _check_optuna()
        following = f"solera bench tables --results {asked.results}"
    plan = make_plan(asked, retry_failed=retry_failed, replace=replace)
    if dry_run:
        return _planned(asked, plan)
    return ended(asked, run_shown(asked, plan, "records", jobs=jobs, data_dir=data_dir), following)


def _check_optuna() -> None:
    from solera.core.errors import ConfigError
    from solera.runs.environment import package_version

    if package_version("optuna") is None:
        raise ConfigError("tuning needs Optuna", "pip install 'solera[tune]'")


def _planned(matrix: Matrix, plan: Plan) -> Answer:
    states = {id(entry): "recorded" for entry in plan.recorded} | {id(entry): "to run" for entry in plan.todo}
    rows = [
        {
            "run": str(entry),
            "record": entry.asked.name,
            "state": states.get(id(entry), "failed before"),
        }
        for entry in matrix.entries
    ]
    columns = {"state": "state", "run": "run"}
    return Answer(
        rows,
        [
            Table.of(f"Records in {_where(matrix)}", rows, columns),
            f"{len(plan.todo)} of {len(rows)} to run",
        ],
    )


def _where(matrix: Matrix) -> Path:
    """Where its records are."""
    from solera.study.records import Record

    return matrix.store(matrix.entries[0].makes if matrix.entries else Record).path


def ended(matrix: Matrix, status: Status, following: str) -> Answer:
    """What was made, what failed, and the next command."""
    failed = [{"record": entry.asked.name, "error": error} for entry, error in status.failed]
    mend = "next: mend the matrix, or try again with --retry-failed"
    return Answer(
        {
            "results": str(_where(matrix)),
            "runs": status.total,
            "records": status.done,
            "made_now": [each.entry.asked.name for each in status.finished if each.succeeded],
            "failed": failed,
        },
        [
            Line(f"{status.done} of {status.total} records in {_where(matrix)}"),
            *(Line(f"failed: {entry} · {error}", "red") for entry, error in status.failed),
            Line(mend) if failed else Line(f"next: {following}", "dim"),
        ],
        failed=bool(failed),
    )


@app.command()
@answers
def tuned(
    tuning: Annotated[
        list[Path] | None,
        typer.Option(
            help="Table of studies (default: tuning.parquet); repeatable. If two tables have a study of a "
            "model, the preset is the second one's."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the best settings as presets, in TOML.")
    ] = None,
) -> Answer:
    """Show what the tuning of every method cost and found, and write the best settings as presets.

    The cost is in trials, passes over all clients, and seconds. The last columns are NDCG@10 on validation:
    of the given settings, which are tried first, and of the chosen ones. Options that were chosen near an end
    of their range are named below: it may be too narrow.

    Example: solera bench tuned --tuning tuning.parquet -o presets.toml
    """
    from solera.core.errors import RunError
    from solera.study.presets import presets_of
    from solera.study.records import Store
    from solera.study.trials import COLUMNS, Study, narrow, spent

    studies = []
    for path in tuning or [Path("tuning.parquet")]:
        found = Store(path, Study).all()
        if not found:
            raise RunError(f"no studies in {path}", "solera bench run MATRIX --tune-only makes some")
        studies += found
    rows = sorted(map(spent, studies), key=lambda row: row[:2])
    said: list[Table | Line | str] = []
    for (dataset, protocol), some in groupby(rows, lambda row: row[:2]):
        shown = list(some)
        said.append(Table(f"{dataset}, {protocol}", COLUMNS, [row.cells() for row in shown]))
        if sentence := narrow(shown):
            said.append(sentence)
    if output is not None:
        output.write_text(presets_of(studies), encoding="utf-8")
        said.append(Line(f"presets written to {output}"))
    written = None if output is None else str(output)
    return Answer({"studies": [row._asdict() for row in rows], "written": written}, said)


@app.command()
@answers
def tables(
    results: Annotated[Path, typer.Option(help="Table of the records.")] = Path("results.parquet"),
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder to write tables to.")] = Path(
        "docs/tables"
    ),
) -> Answer:
    """Make tables (Markdown, CSV, LaTeX) from existing records.

    Example: solera bench tables --results results.parquet -o docs/tables
    """
    from solera.core.errors import RunError
    from solera.study.compare import boards
    from solera.study.records import Record, Store
    from solera.study.tables import make_tables

    store = Store(results, Record)
    found = boards(store.all(), list(store.failures().values()))
    if not found:
        raise RunError(f"no records in {results}", "solera bench run MATRIX makes some")
    written = [path for made in make_tables(found) for path in made.write(output)]
    return Answer({"written": list(map(str, written))}, [Line(f"{len(written)} files in {output}")])


@app.command("import", hidden=True)
@answers
def import_(
    folder: Annotated[Path, typer.Argument(help="Folder of records or studies, one JSON file each.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Table to add them to (default: FOLDER.parquet).")
    ] = None,
) -> Answer:
    """Read records of version 0.2 into a table.

    Example: solera bench import results
    """
    from solera.study.old_records import import_folder

    count = import_folder(folder, table := output or folder.with_name(f"{folder.name}.parquet"))
    return Answer(
        {"records": count, "table": str(table)}, [Line(f"{count} records from {folder} in {table}")]
    )
