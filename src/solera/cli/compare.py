"""solera compare: methods and baselines side by side on one data set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from solera.cli.options import Data, DataDir, parse_columns, takes_settings
from solera.cli.output import Answer, Line, Table, answers, err
from solera.cli.progress import run_shown
from solera.cli.sweep import Workers

if TYPE_CHECKING:
    from solera.runs.result import TestName
    from solera.study.records import Record


@answers
@takes_settings("protocol", "seed", "min_interactions", "columns")
def compare(
    methods: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME…",
            help="Methods, with plug-ins as in fedncf+elastic-merge, centralized baselines, or presets of "
            "both. `local` trains every user alone. Without a baseline, popularity and ease are added.",
        ),
    ],
    data: Data,
    baselines: Annotated[str | None, typer.Option(hidden=True)] = None,
    rounds: Annotated[
        int, typer.Option(help="Rounds of every method, except methods of one round.", min=1)
    ] = 20,
    *,
    settings: dict[str, Any],
    workers: Workers = None,
    out_dir: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for the records (default: a new one under compared/)."),
    ] = None,
    data_dir: DataDir = None,
) -> Answer:
    """Run methods and baselines with their default options, and compare their metrics.

    With `local` and a baseline among them, it also says how much of the gap between the two each method
    closes. Every run leaves a record; the same command shows those that are there, and goes on after an
    interruption.

    Example: solera compare fedmf pfedrec fedease local ease --data ml-100k --rounds 10
    """
    from solera.core.errors import RunError
    from solera.runs.presets import methods_and_baselines
    from solera.study.matrix import side_by_side as matrix_of
    from solera.study.records import Record
    from solera.study.runner import make_plan

    if baselines is None:
        named, centralized = methods_and_baselines(methods)
    else:
        err.print("[yellow]warning:[/] --baselines is no longer needed: name them beside the methods")
        named, centralized = methods, [name.strip() for name in baselines.split(",") if name.strip()]
    protocol, seed = settings.get("protocol", "strict"), settings.get("seed", 0)
    folder = out_dir or Path("compared") / f"{Path(data).stem}-{protocol}-r{rounds}-s{seed}"
    matrix = matrix_of(
        named,
        centralized,
        folder / "records",
        rounds=rounds,
        dataset=data,
        protocol=protocol,
        seed=seed,
        min_interactions=settings.get("min_interactions"),
        columns=parse_columns(settings.get("columns")),
    )
    try:
        plan = make_plan(matrix, retry_failed=True)
    except RunError as error:
        raise RunError(error.message, "give another --out, or remove that folder") from None
    status = run_shown(matrix, plan, "runs", jobs=workers, data_dir=data_dir)
    made = matrix.store(Record).listed()
    records = [made[entry.asked.name] for entry in matrix.entries if entry.asked.name in made]
    failed = [{"run": entry.label, "error": error} for entry, error in status.failed]
    return side_by_side(records, failed, folder)


def side_by_side(records: list[Record], failed: list[dict[str, str]], folder: Path) -> Answer:
    """What records of one data set say of each other, those first that are best on validation."""
    records = sorted(records, key=lambda record: -record.result.validation.full["ndcg@10"])
    gap = _gap(records)
    shown: list[Table | Line | str] = [
        *([_table(records, gap)] if records else []),
        *(Line(f"failed: {each['run']} · {each['error']}", "red") for each in failed),
        _gains(records, gap),
        "test, test_train: of models that know the validation item too, and the training items alone",
        "KiB up: of a client in a round",
        Line(f"records: {folder}"),
    ]
    rows = [_row(record, gap) for record in records]
    return Answer({"out": str(folder), "runs": rows, "failed": failed}, shown, failed=bool(failed))


class Gap(NamedTuple):
    """Training alone, the baseline that is best on validation, and the test that all records have."""

    test: TestName
    local: Record
    best: Record

    def ndcg(self, record: Record) -> float:
        """Of a record in that test."""
        return record.result.tests[self.test].full["ndcg@10"]

    def closed(self, record: Record) -> float | None:
        """The share of the gap that a method closes."""
        if record.kind == "baseline" or record is self.local:
            return None
        low, high = self.ndcg(self.local), self.ndcg(self.best)
        return (self.ndcg(record) - low) / (high - low)


def _gap(records: list[Record]) -> Gap | None:
    """The gap, if the baseline is better than training alone."""
    from solera.runs.result import TESTS

    local = next((each for each in records if each.config.get("method") == "local"), None)
    best = next((each for each in records if each.kind == "baseline"), None)
    test = next((name for name in TESTS[::-1] if all(name in each.result.tests for each in records)), None)
    found = Gap(test, local, best) if test and local and best else None
    return found if found and found.ndcg(found.best) > found.ndcg(found.local) else None


def _gains(records: list[Record], gap: Gap | None) -> str:
    """What collaboration gains, in words."""
    if gap is None:
        return "what collaboration gains: it takes `local` and a better centralized baseline to say so"
    closed = {each.label: share for each in records if (share := gap.closed(each)) is not None}
    shares = ", ".join(f"{label} {share:.0%}" for label, share in closed.items())
    return (
        f"what collaboration gains: training alone ({gap.local.label}) reaches a {gap.test} NDCG of "
        f"{gap.ndcg(gap.local):.4f}, the best centralized model ({gap.best.label}) {gap.ndcg(gap.best):.4f}; "
        f"of this gap the methods close: {shares or 'none is here'}"
    )


def _row(record: Record, gap: Gap | None) -> dict[str, Any]:
    result = record.result
    return {
        "label": record.label,
        "kind": record.kind,
        "rounds": result.rounds,
        "validation": result.validation.model_dump(),
        "test": result.test and result.test.model_dump(),
        "test_train": result.test_train and result.test_train.model_dump(),
        "gap_closed": gap and gap.closed(record),
        "seconds": record.seconds,
        "bytes_up": result.bytes.up if result.bytes else None,
        "bytes_down": result.bytes.down if result.bytes else None,
    }


def _table(records: list[Record], gap: Gap | None) -> Table:
    from solera.runs.result import TESTS

    first = records[0]
    shown, *other = [name for name in TESTS[::-1] if any(name in each.result.tests for each in records)]
    rows = []
    for record in records:
        result, share = record.result, gap and gap.closed(record)
        tested = {name: each.full for name, each in result.tests.items()}
        rows.append(
            (
                record.label if record.kind == "method" else f"{record.label} (centralized)",
                result.validation.full["ndcg@10"],
                *(tested.get(shown, {}).get(metric) for metric in ("ndcg@10", "hr@10")),
                None if share is None else round(100 * share),
                round(record.seconds),
                round(result.bytes.up / 1024) if result.bytes else None,
                result.validation.full["hr@10"],
                *(tested.get(name, {}).get("ndcg@10") for name in other),
            )
        )
    columns = ("at 10", "val. NDCG", f"{shown} NDCG", f"{shown} HR", "gap, %", "s", "KiB up", "val. HR")
    return Table(
        f"{first.dataset}, {first.protocol}, seed {first.seed}: full ranking, best on validation first",
        (*columns, *(f"{name} NDCG" for name in other)),
        rows,
        first.result.leaky,
    )
