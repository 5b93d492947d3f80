"""solera bench: runs of whole matrices and their tables; and the speed of Solera itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from solera.cli.bench_progress import matrix_progress, raise_if_stopped
from solera.cli.data import DataDir, parse_pairs
from solera.cli.output import Json, err, help_if_alone, out, print_json, table
from solera.cli.runs import Data, Options, Seed

if TYPE_CHECKING:
    from solera.bench.matrix import Matrix
    from solera.bench.runner import Plan, Status

app = typer.Typer(
    help="Run benchmarks, make their tables, measure Solera itself.", invoke_without_command=True
)
app.callback()(help_if_alone)


Matrix_ = Annotated[Path, typer.Argument(help="A TOML file; docs/benchmarks.md shows one.")]
Jobs = Annotated[
    int | None, typer.Option(help="Runs at a time, each with one thread (default: one per core).", min=1)
]
RetryFailed = Annotated[bool, typer.Option("--retry-failed", help="Try runs again that failed before.")]
Replace = Annotated[bool, typer.Option("--replace", help="Make records anew that are of other settings.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check the matrix and say what would be run.")]


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
    """Run what is missing of a matrix; give the same command again after any interruption.

    Example: solera bench run matrix.toml --jobs 2
    """
    from solera.bench.matrix import read_matrix

    asked = read_matrix(matrix, data_dir)
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
    """Look for the settings of a matrix's `tune` tables: as many trials for one method as for another.

    Settings are judged on validation items alone. Needs the extra `tune`.

    Example: solera bench tune matrix.toml --jobs 2
    """
    from solera.bench.matrix import read_tuning
    from solera.core.errors import ConfigError
    from solera.runs.environment import package_version

    if package_version("optuna") is None:
        raise ConfigError("tuning needs Optuna", "pip install 'solera[tune]'")
    asked = read_tuning(matrix)
    following = f"solera bench presets --tuning {asked.results}"
    _run(asked, following, jobs, retry_failed, replace, dry_run, data_dir, json)


@app.command()
def presets(
    tuning: Annotated[Path, typer.Option(help="Folder of the studies.")] = Path("tuning"),
    output: Annotated[Path | None, typer.Option("-o", "--output", help="File to write.")] = None,
) -> None:
    """The best settings of all studies as presets, in TOML.

    Example: solera bench presets --tuning tuning -o src/solera/runs/tuned.toml
    """
    from solera.bench.best import presets_of
    from solera.bench.studies import read_studies
    from solera.core.errors import RunError

    studies = read_studies(tuning)
    if not studies:
        raise RunError(f"no studies in {tuning}", "solera bench tune MATRIX makes some")
    text = presets_of(studies)
    if output is None:
        typer.echo(text, nl=False)
    else:
        output.write_text(text, encoding="utf-8")
        out.print(f"{len(studies)} presets in {output}", highlight=False)


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
    from solera.bench.runner import make_plan, run_matrix

    plan = make_plan(asked, retry_failed=retry_failed, replace=replace)
    if dry_run:
        _show_plan(asked, plan, json)
        return
    with matrix_progress() as on_change:
        status = run_matrix(asked, plan, jobs=jobs, data_dir=data_dir, on_change=on_change)
    raise_if_stopped(status, "records")
    _show_end(asked, status, following, json)


def _show_plan(matrix: Matrix, plan: Plan, json: bool) -> None:
    states = {id(entry): "recorded" for entry in plan.recorded} | {id(entry): "to run" for entry in plan.todo}
    rows = [
        {
            "run": str(entry),
            "record": str(matrix.record(entry)),
            "state": states.get(id(entry), "failed before"),
        }
        for entry in matrix.entries
    ]
    if json:
        print_json(rows)
        return
    table(f"Records in {matrix.results}", ("run", "state"), ((row["run"], row["state"]) for row in rows))
    out.print(f"{len(plan.todo)} of {len(rows)} to run", highlight=False)


def _show_end(matrix: Matrix, status: Status, following: str, json: bool) -> None:
    failed = [{"record": str(matrix.record(entry)), "error": error} for entry, error in status.failed]
    if json:
        found: dict[str, Any] = {
            "results": str(matrix.results),
            "runs": status.total,
            "records": status.done,
            "made_now": [str(matrix.record(each.entry)) for each in status.finished if each.succeeded],
            "failed": failed,
        }
        print_json(found)
    else:
        out.print(f"{status.done} of {status.total} records in {matrix.results}", highlight=False)
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
    results: Annotated[Path, typer.Option(help="Folder of the records.")] = Path("results"),
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Folder to write tables and pictures to.")
    ] = Path("docs/tables"),
    json: Json = False,
) -> None:
    """Make tables (Markdown, CSV, LaTeX) and pictures (PNG, SVG) from records alone.

    Example: solera bench tables --results results -o docs/tables
    """
    from solera.bench.records import read_all, read_failures
    from solera.bench.tables import blocks, make_tables
    from solera.core.errors import RunError
    from solera.runs.environment import package_version

    found = blocks(read_all(results), read_failures(results))
    if not found:
        raise RunError(f"no records in {results}", "solera bench run MATRIX makes some")
    written = [path for made in make_tables(found) for path in made.write(output)]
    drawn = package_version("matplotlib") is not None
    if drawn:
        from solera.bench.plots import make_plots

        written += make_plots(found, output)
    if json:
        print_json({"written": list(map(str, written)), "plots": drawn})
        return
    out.print(f"{len(written)} files in {output}", highlight=False)
    if not drawn:
        err.print("no pictures: pip install 'solera[plots]'", style="yellow", highlight=False, markup=False)


@app.command()
def engine(
    data: Data,
    method: Annotated[
        str, typer.Option(help="A method; fedmf is also held against a compiled loop.")
    ] = "fedmf",
    rounds: Annotated[int, typer.Option(help="Measured rounds of every engine.", min=1)] = 3,
    option: Options = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Seconds per round of the block engine, the reference engine and a compiled loop.

    All in one process, in turn, one thread each; and the block engine with two threads.

    Example: solera bench engine --data ml-100k --method fedmf
    """
    from solera.bench.engine import bench_engine
    from solera.data.datasets import load

    interactions = load(data, data_dir=data_dir)
    options = parse_pairs(option or [], "-o local_epochs=1")
    with err.status("measuring …") as status:
        found = bench_engine(
            method, interactions, options, rounds=rounds, on_round=lambda what: status.update(f"{what} …")
        )
    if json:
        print_json(found)
        return
    table(
        f"{method} on {interactions.name}, one thread",
        ("engine", "s per round"),
        found["seconds_per_round"].items(),
    )
    for label, key in (
        ("reference / block", "block_vs_reference"),
        ("block / compiled loop", "block_vs_compiled"),
        ("one thread / two threads", "two_threads_vs_one"),
    ):
        if found[key] is not None:
            out.print(f"{label}: {found[key]:.2f}", highlight=False)
    out.print(
        f"largest relative difference of block and reference: {found['largest_difference']:.1e}",
        highlight=False,
    )


@app.command()
def methods(
    data: Data,
    method: Annotated[
        list[str] | None,
        typer.Option(help="A method, with plug-ins as in fedmf+plgc; repeatable. Default: the five papers'."),
    ] = None,
    rounds: Annotated[int, typer.Option(help="Measured rounds of every method.", min=1)] = 3,
    threads: Annotated[int, typer.Option(help="Threads.", min=1)] = 1,
    option: Options = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Seconds a round and memory of methods, each in a process of its own.

    Example: solera bench methods --data ml-100k

    Example: solera bench methods --data ml-1m --method fedem --threads 2 -o clients_per_round=1.0
    """
    from solera.bench.methods import FIVE, bench_methods
    from solera.data.datasets import load

    interactions = load(data, data_dir=data_dir)
    with err.status("measuring …") as status:
        found = bench_methods(
            method or list(FIVE),
            interactions,
            parse_pairs(option or [], "-o clients_per_round=1.0"),
            rounds=rounds,
            threads=threads,
            on_method=lambda what: status.update(f"{what} …"),
        )
    if json:
        print_json(found)
        return
    table(
        f"{interactions.name}, {rounds} rounds, {threads} thread{'s' if threads > 1 else ''}",
        ("method", "clients", "s a round", "of it server", "peak memory, GB", "KiB up a client"),
        (
            (
                entry["method"],
                entry["clients"],
                entry["seconds_per_round"],
                entry["seconds_on_server"],
                entry["peak_bytes"] / 1e9,
                entry["bytes_up"] / 1024,
            )
            for entry in found
        ),
    )


@app.command()
def evaluation(
    data: Data,
    repeats: Annotated[int, typer.Option(help="Measured evaluations.", min=1)] = 3,
    threads: Annotated[int, typer.Option(help="Threads.", min=1)] = 2,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Seconds and memory of ranking the test items of all users, in a process of its own.

    Example: solera bench evaluation --data ml-1m
    """
    from solera.bench.evaluation import bench_evaluation
    from solera.data.datasets import load

    interactions = load(data, data_dir=data_dir)
    with err.status("measuring …"):
        found = bench_evaluation(interactions, repeats=repeats, threads=threads)
    if json:
        print_json(found)
        return
    table(
        f"Evaluation on {interactions.name}, {threads} thread{'s' if threads > 1 else ''}",
        ("users", "items", "s", "CPU s", "s once, before", "peak memory, GB"),
        [
            (
                found["users"],
                found["items"],
                found["seconds"],
                found["cpu_seconds"],
                found["seconds_preparing"],
                found["peak_bytes"] / 1e9,
            )
        ],
    )


@app.command()
def flower(
    data: Data,
    method: Annotated[str, typer.Option(help="What the nodes train.")] = "fedmf",
    nodes: Annotated[int, typer.Option(help="Nodes, all on this machine.", min=1)] = 3,
    users: Annotated[int, typer.Option(help="Users on every node.", min=1)] = 50,
    rounds: Annotated[int, typer.Option(help="Rounds; the first is not counted.", min=2)] = 6,
    secure_aggregation: Annotated[
        bool, typer.Option("--secure-aggregation", help="With masked uploads: five messages a round.")
    ] = False,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """What a round over Flower costs, with TLS and keys, beside a bare echo of the same bytes.

    Example: solera bench flower --data ml-100k --nodes 3 --users 50
    """
    from dataclasses import asdict

    from solera.bench.flower import measure
    from solera.data.datasets import load

    interactions = load(data, data_dir=data_dir)
    with err.status("measuring …") as status:
        found = measure(
            interactions,
            method,
            nodes=nodes,
            users=users,
            rounds=rounds,
            say=lambda text: status.update(f"{text} …"),
            secure_aggregation=secure_aggregation,
        )
    if json:
        print_json(asdict(found) | {"ratio": found.ratio})
        return
    table(
        f"A round of {method} on {interactions.name}, {nodes} nodes × {users} users, seconds",
        ("bare echo", "round", "of it training", "round without training / echo", "MiB down", "MiB up"),
        [
            (
                found.echo,
                found.round,
                found.training,
                found.ratio,
                found.bytes_down / 2**20,
                found.bytes_up / 2**20,
            )
        ],
    )


@app.command()
def secagg(
    values: Annotated[str, typer.Option(help="Sizes of the vectors.")] = "100000,1000000",
    clients: Annotated[int, typer.Option(help="Members of a round.", min=3, max=1000)] = 20,
    dropped: Annotated[int, typer.Option(help="Clients that drop out before they send values.", min=0)] = 0,
    repeats: Annotated[int, typer.Option(help="Measured rounds of every size.", min=1)] = 3,
    json: Json = False,
) -> None:
    """Seconds and bytes of secure aggregation, and how many times those of plain sums.

    Needs the extra `privacy`.

    Example: solera bench secagg --values 100000,1000000 --clients 20
    """
    from solera.privacy.secagg.measure import measure

    with err.status("measuring …") as status:
        found = measure(
            _sizes(values),
            clients=clients,
            dropped=dropped,
            repeats=repeats,
            on_size=lambda what: status.update(f"{what} …"),
        )
    if json:
        print_json(found)
        return
    for entry in found:
        title = f"{entry['values']:,} values, {clients} clients, {dropped} of them drop out"
        table(
            title,
            ("stage", "s, a client", "s, server"),
            [(stage, s, entry["server_seconds"][stage]) for stage, s in entry["client_seconds"].items()]
            + [("plain sum", entry["plain_client_seconds"], entry["plain_server_seconds"])],
        )
        out.print(
            f"times plain: client {entry['client_ratio']:.1f}, server {entry['server_ratio']:.1f},"
            f" all together {entry['total_ratio']:.1f}\n"
            f"bytes a client: {entry['bytes_up']:,} up ({entry['bytes_up_ratio']:.3f} times plain),"
            f" {entry['bytes_down']:,} down",
            highlight=False,
        )


@app.command()
def sketch(
    data: Data,
    method: Annotated[str, typer.Option(help="A method of one round.")] = "fedease",
    sizes: Annotated[str, typer.Option(help="Sizes of the sketches.")] = "25,50,100,200,400",
    seed: Seed = 0,
    option: Options = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Accuracy of a one-round method whose sums are sketched, against the bytes under secure aggregation.

    Example: solera bench sketch --data ml-100k --method fedease
    """
    from solera.data.datasets import load
    from solera.privacy.sketch_accuracy import sketch_accuracy

    interactions = load(data, data_dir=data_dir)
    with err.status("measuring …") as status:
        found = sketch_accuracy(
            method,
            interactions,
            _sizes(sizes),
            parse_pairs(option or [], "-o reg=500"),
            seed=seed,
            on_size=lambda what: status.update(f"{what} …"),
        )
    if json:
        print_json(found)
        return
    table(
        f"{method} on {interactions.name}, sums sketched, full ranking",
        ("size", "MB a client", "of the whole", "ndcg@10", "hr@10"),
        (
            (
                "whole sums" if entry["size"] is None else f"{entry['size']}",
                entry["bytes"] / 1e6,
                entry["bytes"] / found[0]["bytes"],
                entry["ndcg@10"],
                entry["hr@10"],
            )
            for entry in found
        ),
    )


def _sizes(text: str) -> list[int]:
    from solera.core.errors import ConfigError

    try:
        sizes = [int(size) for size in text.split(",")]
    except ValueError:
        sizes = [0]
    if min(sizes) < 1:
        raise ConfigError(f"no sizes: {text!r}", "give whole numbers, such as 100,1000")
    return sizes


@app.command()
def migrate(
    folder: Annotated[Path, typer.Argument(help="A folder of records, searched with its subfolders.")],
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Rewrite records of version 0.1 in today's form. Records that are already in it are left alone.

    The records' data sets must be at hand: the old form does not say how many users and items they have.

    Example: solera bench migrate results
    """
    from solera.bench.migration import migrate as migrate_records

    migrated = migrate_records(folder, data_dir)
    if json:
        print_json({"migrated": [str(path) for path in migrated]})
    else:
        out.print(f"{len(migrated)} records migrated in {folder}", highlight=False)
