"""solera compare: methods and baselines side by side on one data set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from solera.cli.bench_progress import matrix_progress, raise_if_stopped
from solera.cli.options import Columns, Data, DataDir, MinInteractions, ProtocolName, Seed, parse_columns
from solera.cli.output import Json, out, print_json, table
from solera.cli.sweep import Workers

if TYPE_CHECKING:
    from solera.runs.result import Tested
    from solera.study.records import Record


def compare(
    methods: Annotated[
        list[str],
        typer.Argument(
            metavar="METHOD…", help="Methods, with plug-ins as in fedncf+elastic-merge, or presets."
        ),
    ],
    data: Data,
    baselines: Annotated[
        str, typer.Option(help="Centralized baselines to compare with, separated by commas; '' for none.")
    ] = "popularity,ease",
    rounds: Annotated[
        int, typer.Option(help="Rounds of every method, except methods of one round.", min=1)
    ] = 20,
    protocol: ProtocolName = "strict",
    seed: Seed = 0,
    workers: Workers = None,
    out_dir: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for the records (default: a new one under compared/)."),
    ] = None,
    data_dir: DataDir = None,
    min_interactions: MinInteractions = None,
    columns: Columns = None,
    json: Json = False,
) -> None:
    """Run methods with their default options and compare their metrics.

    Every run leaves a record; the same command shows those that are there, and goes on after an interruption.

    Example: solera compare fedmf pfedrec fedease --data ml-100k --rounds 10
    """
    from solera.core.errors import RunError
    from solera.evaluate import get
    from solera.study.matrix import side_by_side
    from solera.study.records import Record
    from solera.study.runner import make_plan, run_matrix

    folder = out_dir or Path("compared") / f"{Path(data).stem}-{protocol}-r{rounds}-s{seed}"
    matrix = side_by_side(
        methods,
        [name.strip() for name in baselines.split(",") if name.strip()],
        folder / "records",
        rounds=rounds,
        dataset=data,
        protocol=protocol,
        seed=seed,
        min_interactions=min_interactions,
        columns=parse_columns(columns),
    )
    try:
        plan = make_plan(matrix, retry_failed=True)
    except RunError as error:
        raise RunError(error.message, "give another --out, or remove that folder") from None
    with matrix_progress("runs") as on_change:
        status = run_matrix(matrix, plan, jobs=workers, data_dir=data_dir, on_change=on_change)
    raise_if_stopped(status, f"runs in {folder}")
    made = matrix.store(Record).listed()
    records = [made[entry.asked.name] for entry in matrix.entries if entry.asked.name in made]
    records.sort(key=lambda record: -record.result.validation.full["ndcg@10"])
    failed = [{"run": entry.label, "error": error} for entry, error in status.failed]
    if json:
        print_json({"out": str(folder), "runs": [_row(record) for record in records], "failed": failed})
    else:
        _show(records, failed, folder, leaky=get(protocol).leaky)
    if failed:
        raise typer.Exit(1)


def _row(record: Record) -> dict[str, Any]:
    result = record.result
    return {
        "label": record.label,
        "kind": record.kind,
        "rounds": result.rounds,
        "validation": result.validation.model_dump(),
        "test": result.test.model_dump(),
        "test_train": result.test_train and result.test_train.model_dump(),
        "test_validation": result.test_validation and result.test_validation.model_dump(),
        "seconds": record.seconds,
        "bytes_up": result.bytes.up if result.bytes else None,
        "bytes_down": result.bytes.down if result.bytes else None,
    }


def _both(record: Record) -> tuple[Tested | None, Tested | None]:
    """Test figures of models that know training items alone, and the validation item as well."""
    return record.result.test_train, record.result.test_validation


def _show(records: list[Record], failed: list[dict[str, str]], folder: Path, *, leaky: bool) -> None:
    if records:
        rows = [
            (
                record.label if record.kind == "method" else f"{record.label} (centralized)",
                *(record.result.validation.full[name] for name in ("hr@10", "ndcg@10")),
                *(record.result.test.full[name] for name in ("hr@10", "ndcg@10")),
                *(each and each.full["ndcg@10"] for each in _both(record)),
                f"{record.seconds:.1f}",
                f"{record.result.bytes.up / 1024:,.1f}" if record.result.bytes else "–",
            )
            for record in records
        ]
        first = records[0]
        table(
            f"{first.dataset}, {first.protocol}, seed {first.seed}: full ranking, best on validation first",
            ("at 10", "val. HR", "val. NDCG", "test HR", "test NDCG", "train", "+ val.", "s", "KiB up"),
            rows,
            leaky=leaky,
        )
    for each in failed:
        said = f"failed: {each['run']} · {each['error']}"
        out.print(said, style="red", highlight=False, markup=False, soft_wrap=True)
    said = (
        "train, + val.: test NDCG of models that know training items alone, and the validation item as well"
    )
    out.print(said, highlight=False)
    out.print(f"KiB up: of a client in a round; records: {folder}", highlight=False, soft_wrap=True)
