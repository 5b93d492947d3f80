"""solera bench scale and predict: how cost grows, measured and predicted."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from solera.cli.options import parse_pairs
from solera.cli.output import Answer, Line, Table, answers, duration, err

if TYPE_CHECKING:
    from solera_research.scale.points import Point
    from solera_research.scale.records import ScaleRecord

RECORDS = Path("experiments/records/scale.parquet")
Quick = Annotated[bool, typer.Option("--quick", help="Tiny sizes, to try the command.")]


@answers
def scale(
    output: Annotated[Path, typer.Option("-o", "--output", help="Table of the records.")] = RECORDS,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Points whose name contains this word, e.g. fedmf or u1e6; repeatable."),
    ] = None,
    quick: Quick = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Measure points again that have a record.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the points and measure nothing.")] = False,
    worlds: Annotated[
        Path | None, typer.Option(help="Folder of the synthetic data (default: in the cache).")
    ] = None,
) -> Answer:
    """Measure time, memory and traffic against users, items and ranks, one training run per point.

    Every point is a `solera train` of its own on synthetic data. Its record is written when it is done.
    Points with a record are not measured again, so after an interruption the same command continues.

    Example: solera bench scale --quick -o /tmp/scale --only fedmf

    Example: solera bench scale --only u1e6
    """
    from solera.data.files import cache_dir
    from solera.runs import StoppedError
    from solera.runs.environment import check_committed
    from solera_research.scale.measure import FailedError, measure, todo
    from solera_research.scale.points import FULL, QUICK, chosen, points

    wanted = chosen(points(QUICK if quick else FULL), only or [])
    skipped = [sentence for point in wanted if (sentence := point.missing_option())]
    able = [point for point in wanted if not point.missing_option()]
    left = todo(able, output, replace=replace)
    for sentence in skipped:
        err.print(sentence, highlight=False, soft_wrap=True)
    if dry_run:
        return _listed(able, left)
    if left:
        check_committed(output)
    failed: list[str] = []
    try:
        for number, point in enumerate(left, start=1):
            begun = time.monotonic()
            with err.status("") as status:
                try:
                    measure(point, output, worlds or cache_dir() / "scale", status.update)
                except FailedError as error:
                    failed.append(f"{point.name}: {error}")
                    err.print(f"failed: {failed[-1]}", style="red", highlight=False, markup=False)
                    continue
            took = duration(time.monotonic() - begun)
            err.print(f"{number} of {len(left)}: {point.name} · {took}", highlight=False, markup=False)
    except KeyboardInterrupt:
        done = len(able) - len(todo(able, output))
        raise StoppedError(
            f"stopped with {done} of {len(able)} points in {output}",
            "run the same command again to continue",
        ) from None
    done = len(able) - len(todo(able, output))
    return Answer(
        {"records": str(output), "points": len(able), "recorded": done, "failed": failed, "skipped": skipped},
        [
            Line(f"{done} of {len(able)} points in {output}"),
            Line(f"next: solera bench predict --records {output} --check", "dim"),
        ],
        failed=bool(failed),
    )


def _listed(able: list[Point], left: list[Point]) -> Answer:
    rows = [
        {"point": point.name, "state": "to measure" if point in left else "recorded"}
        | point.model_dump(include={"clients", "rounds"})
        for point in able
    ]
    columns = {name: name for name in ("point", "state", "clients", "rounds")}
    return Answer(rows, [Table.of("Points", rows, columns), f"{len(left)} of {len(able)} to measure"])


@answers
def predict(
    users: Annotated[float, typer.Option(help="Users.", min=1)] = 1e8,
    items: Annotated[float, typer.Option(help="Items.", min=1)] = 1e7,
    clients: Annotated[float, typer.Option(help="Clients in a round.", min=1)] = 1e5,
    ranks: Annotated[int, typer.Option(help="Processes that share the clients, a core each.", min=1)] = 64,
    rounds: Annotated[int, typer.Option(help="Rounds, for the rows that clients keep.", min=1)] = 100,
    records: Annotated[Path, typer.Option(help="Table of the records.")] = RECORDS,
    check: Annotated[
        bool,
        typer.Option("--check", help="Instead, leave out each method's largest point and predict that one."),
    ] = False,
    price: Annotated[
        list[str] | None,
        typer.Option(help="core_hour, gb_per_core or gb_out, in dollars: core_hour=0.04; repeatable."),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            help="download_mb, device_mb, memory_gb or round_minutes: download_mb=2000; repeatable."
        ),
    ] = None,
) -> Answer:
    """Predict cores, memory, network and money of a round, from the records of `solera bench scale`.

    Example: solera bench predict --users 1e8 --items 1e7 --clients 1e5 --ranks 64

    Example: solera bench predict --check
    """
    from dataclasses import asdict

    from solera.core.errors import RunError
    from solera_research.scale import fit
    from solera_research.scale.forecast import SOURCE, Limits, Prices, amount, forecast, parse
    from solera_research.scale.records import read_all

    found = read_all(records)
    if not found:
        raise RunError(f"no records in {records}", "make some with `solera bench scale`")
    if check:
        return _check(found)
    prices = parse(Prices, parse_pairs(price or [], "--price core_hour=0.04"))
    limits = parse(Limits, parse_pairs(limit or [], "--limit download_mb=2000"))
    rows = [
        forecast(
            model,
            fit.Size(users, items, clients, rounds, ranks, embedding_size=model.embedding_size),
            prices,
            limits,
        )
        for model in fit.models(found).values()
    ]
    columns = ("method", "clients", "time", "memory of a rank", "down per client", "network", "$")
    cells = [
        (
            each.method,
            f"{each.clients:.0e}",
            duration(each.seconds),
            amount(each.memory),
            amount(each.down),
            amount(each.network),
            f"{each.dollars:,.2f}",
        )
        for each in rows
    ]
    verdicts = [
        Line(f"{each.method} ({each.points} points): {'; '.join(each.obstacles) or 'within the limits'}")
        for each in rows
    ]
    return Answer(
        {"prices": prices.model_dump(), "source": SOURCE, "predicted": [asdict(each) for each in rows]},
        [
            Table(f"A round with {users:,.0f} users, {items:,.0f} items and {ranks} ranks", columns, cells),
            *verdicts,
            Line(SOURCE, "dim"),
        ],
    )


def _check(found: list[ScaleRecord]) -> Answer:
    from solera.core.errors import RunError
    from solera_research.scale import fit

    labels = dict.fromkeys(record.point.label for record in found)
    made = [fit.check([each for each in found if each.point.label == label]) for label in labels]
    checks = [each for each in made if each]
    if not checks:
        raise RunError(
            "no method has three points of different size", "measure more with `solera bench scale`"
        )
    rows = [
        (each.record.point.name, figure, each.predicted[figure], value)
        for each in checks
        for figure, value in each.measured.items()
    ]
    shown = (
        (name, figure, f"{predicted:.4g}", f"{value:.4g}", f"{predicted / value:.2f}" if value else "–")
        for name, figure, predicted, value in rows
    )
    columns = ("point", "figure", "predicted", "measured", "ratio")
    return Answer(
        [dict(zip(columns, row, strict=False)) for row in rows],
        [Table("Largest points, predicted from the smaller ones", columns, shown)],
    )
