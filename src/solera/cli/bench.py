"""solera bench: runs of whole matrices, and their tables."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from solera.cli.bench_progress import matrix_progress, raise_if_stopped
from solera.cli.lazy import Pluggable
from solera.cli.options import DataDir
from solera.cli.output import Json, help_if_alone, out, print_json, table

if TYPE_CHECKING:
    from solera.study.matrix import Matrix
    from solera.study.runner import Plan, Status


class _Bench(Pluggable):
    prefix = "bench."


app = typer.Typer(cls=_Bench, help="Run benchmarks and make their tables.", invoke_without_command=True)
app.callback()(help_if_alone)


Matrix_ = Annotated[Path, typer.Argument(help="TOML file of the benchmark; docs/benchmarks.md shows one.")]
Jobs = Annotated[
    int | None, typer.Option(help="Runs in parallel, each with one thread (default: one per core).", min=1)
]
RetryFailed = Annotated[bool, typer.Option("--retry-failed", help="Repeat runs that failed before.")]
Replace = Annotated[bool, typer.Option("--replace", help="Replace records made with other settings.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check the matrix and list what would be run.")]


@app.command()
def run(
    matrix: Matrix_,
    jobs: Jobs = None,
    retry_failed: RetryFailed = False,
    replace: Replace = False,
    dry_run: DryRun = False,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Run the missing runs of a matrix. After an interruption, the same command continues.

    Methods in `tune` tables with seeds are tuned first, which needs the extra `tune`.

    Example: solera bench run matrix.toml --jobs 2
    """
    from solera.study.matrix import Tuning, read_matrix

    asked = read_matrix(matrix, data_dir)
    if any(isinstance(entry, Tuning) for entry in asked.entries):
        _check_optuna()
    following = f"solera bench tables --results {asked.results}"
    _run(asked, following, jobs, retry_failed, replace, dry_run, data_dir, json)


@app.command()
def tune(
    matrix: Matrix_,
    jobs: Jobs = None,
    retry_failed: RetryFailed = False,
    replace: Replace = False,
    dry_run: DryRun = False,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Tune the methods in the `tune` tables of a matrix, with the same budget for each, without final runs.

    Settings are judged on validation items alone. Needs the extra `tune`.

    Example: solera bench tune matrix.toml --jobs 2
    """
    from solera.study.matrix import read_tuning

    _check_optuna()
    asked = read_tuning(matrix)
    following = f"solera bench presets --tuning {asked.tuning}"
    _run(asked, following, jobs, retry_failed, replace, dry_run, data_dir, json)


def _check_optuna() -> None:
    from solera.core.errors import ConfigError
    from solera.runs.environment import package_version

    if package_version("optuna") is None:
        raise ConfigError("tuning needs Optuna", "pip install 'solera[tune]'")


@app.command()
def budgets(
    tuning: Annotated[Path, typer.Option(help="Table of the studies.")] = Path("tuning.parquet"),
    json: Json = False,
) -> None:
    """Show what the tuning of every method cost: trials, passes over all clients, and seconds.

    The last columns are NDCG@10 on validation: of the given settings, which are tried first, and of the
    chosen ones. Options that were chosen near an end of their range are named below: it may be too narrow.

    Example: solera bench budgets --tuning tuning.parquet
    """
    from solera.core.errors import RunError
    from solera.study.records import Store
    from solera.study.trials import Study, narrow, spent

    rows = sorted(map(spent, Store(tuning, Study).all()), key=lambda row: row[:2])
    if not rows:
        raise RunError(f"no studies in {tuning}", "solera bench tune MATRIX makes some")
    if json:
        print_json([row._asdict() for row in rows])
    else:
        for (dataset, protocol), some in groupby(rows, lambda row: row[:2]):
            shown = list(some)
            columns = ("method", "trials", "failed", "passes", "seconds", "given", "chosen")
            cells = (
                (
                    row.label,
                    row.trials,
                    row.failed,
                    round(row.passes),
                    round(row.seconds),
                    row.given,
                    row.ndcg,
                )
                for row in shown
            )
            table(f"{dataset}, {protocol}", columns, cells)
            if sentence := narrow(shown):
                out.print(sentence, highlight=False)


@app.command()
def presets(
    tuning: Annotated[
        list[Path] | None,
        typer.Option(
            help="Table of studies (default: tuning.parquet). If it is given twice and both tables have a "
            "study of a model, the second one counts."
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="File to write.")] = None,
) -> None:
    """Write the best settings of all studies as presets, in TOML.

    Example: solera bench presets --tuning tuning.parquet -o presets.toml
    """
    from solera.core.errors import RunError
    from solera.study.presets import presets_of
    from solera.study.records import Store
    from solera.study.trials import Study

    studies = []
    for path in tuning or [Path("tuning.parquet")]:
        found = Store(path, Study).all()
        if not found:
            raise RunError(f"no studies in {path}", "solera bench tune MATRIX makes some")
        studies += found
    text = presets_of(studies)
    if output is None:
        typer.echo(text, nl=False)
    else:
        output.write_text(text, encoding="utf-8")
        out.print(f"presets written to {output}", highlight=False)


def _run(
    asked: Matrix,
    following: str,
    jobs: int | None,
    retry_failed: bool,
    replace: bool,
    dry_run: bool,
    data_dir: Path | None,
    json: bool,
) -> None:
    from solera.study.runner import make_plan, run_matrix

    plan = make_plan(asked, retry_failed=retry_failed, replace=replace)
    if dry_run:
        _show_plan(asked, plan, json)
        return
    with matrix_progress() as on_change:
        status = run_matrix(asked, plan, jobs=jobs, data_dir=data_dir, on_change=on_change)
    raise_if_stopped(status, "records")
    show_end(asked, status, following, json)


def _show_plan(matrix: Matrix, plan: Plan, json: bool) -> None:
    states = {id(entry): "recorded" for entry in plan.recorded} | {id(entry): "to run" for entry in plan.todo}
    rows = [
        {
            "run": str(entry),
            "record": entry.asked.name,
            "state": states.get(id(entry), "failed before"),
        }
        for entry in matrix.entries
    ]
    if json:
        print_json(rows)
        return
    table(f"Records in {_where(matrix)}", ("state", "run"), ((row["state"], row["run"]) for row in rows))
    out.print(f"{len(plan.todo)} of {len(rows)} to run", highlight=False)


def _where(matrix: Matrix) -> Path:
    """Where its records are."""
    from solera.study.records import Record

    return matrix.store(matrix.entries[0].makes if matrix.entries else Record).path


def show_end(matrix: Matrix, status: Status, following: str, json: bool) -> None:
    """Say what was made and what failed; exit with 1 if something failed."""
    failed = [{"record": entry.asked.name, "error": error} for entry, error in status.failed]
    if json:
        found: dict[str, Any] = {
            "results": str(_where(matrix)),
            "runs": status.total,
            "records": status.done,
            "made_now": [each.entry.asked.name for each in status.finished if each.succeeded],
            "failed": failed,
        }
        print_json(found)
    else:
        out.print(f"{status.done} of {status.total} records in {_where(matrix)}", highlight=False)
        for entry, error in status.failed:
            out.print(
                f"failed: {entry} · {error}", style="red", highlight=False, markup=False, soft_wrap=True
            )
        if failed:
            out.print("next: mend the matrix, or try again with --retry-failed", highlight=False)
        else:
            out.print(f"next: {following}", style="dim", highlight=False)
    if failed:
        raise typer.Exit(1)


@app.command()
def tables(
    results: Annotated[Path, typer.Option(help="Table of the records.")] = Path("results.parquet"),
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder to write tables to.")] = Path(
        "docs/tables"
    ),
    json: Json = False,
) -> None:
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
    if json:
        print_json({"written": list(map(str, written))})
        return
    out.print(f"{len(written)} files in {output}", highlight=False)


@app.command("import", hidden=True)
def import_(
    folder: Annotated[Path, typer.Argument(help="Folder of records or studies, one JSON file each.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Table to add them to (default: FOLDER.parquet).")
    ] = None,
) -> None:
    """Read records of version 0.2 into a table.

    Example: solera bench import results
    """
    from solera.study.old_records import import_folder

    count = import_folder(folder, table := output or folder.with_name(f"{folder.name}.parquet"))
    out.print(f"{count} records from {folder} in {table}", highlight=False)
