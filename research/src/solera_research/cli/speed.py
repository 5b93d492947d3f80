"""solera bench speed: what Solera itself costs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Literal

import typer

from solera.cli.options import DataDir, OptionalData, Options, parse_numbers, parse_pairs
from solera.cli.output import Answer, Table, answers, err

What = Literal["engine", "methods", "evaluation", "secagg", "sketch", "reports", "thresholds"]
Tell = Callable[[str], None]  # hears of each step


@answers
def speed(
    what: Annotated[
        What,
        typer.Argument(
            help="engine: a round of the block and the reference engine; methods: a round and the memory of "
            "methods; evaluation: ranking the test items of all users; secagg: secure against plain sums "
            "(extra `privacy`); sketch: accuracy of a one-round method with sketched sums; reports: an "
            "epoch of threshold reports (extra `privacy`); thresholds: accuracy of a one-round method "
            "from the pairs that at least so many clients have.",
        ),
    ],
    data: OptionalData = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="Of engine (fedmf), methods (those of the five papers; repeatable), sketch and thresholds "
            "(fedease); with plug-ins as in fedmf+plgc."
        ),
    ] = None,
    rounds: Annotated[
        int | None, typer.Option("--rounds", "--repeats", help="How often it is measured (3).", min=1)
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="Threads, of methods (1) and evaluation (2).", min=1)
    ] = None,
    sizes: Annotated[
        str | None,
        typer.Option(
            "--sizes",
            "--values",
            help="Lengths of the vectors of secagg (100000,1000000), sizes of the sketches (25 to 400), "
            "reports of a message (50,210), or thresholds (1,2,5,10,20,50).",
        ),
    ] = None,
    clients: Annotated[
        int | None,
        typer.Option(help="Members of a round of secagg (20), or devices of reports (40).", min=3, max=1000),
    ] = None,
    dropped: Annotated[
        int | None, typer.Option(help="Clients of secagg that drop out before they send values (0).", min=0)
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Seed of the sketches, or of who chooses the regularizer of thresholds (0).", min=0
        ),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Epochs in which histories come, of thresholds (1).", min=1)
    ] = None,
    regs: Annotated[
        str | None, typer.Option(help="Regularizers that thresholds tries (1 to 1,000).", metavar="LIST")
    ] = None,
    users: Annotated[
        int | None, typer.Option(help="Users whose items thresholds ranks, drawn by the seed (all).", min=1)
    ] = None,
    option: Options = None,
    data_dir: DataDir = None,
) -> Answer:
    """Measure seconds, memory and traffic of a part of Solera.

    Example: solera bench speed engine --data ml-100k --method fedmf

    Example: solera bench speed methods --data ml-1m --method fedem --threads 2 -o clients_per_round=1.0

    Example: solera bench speed evaluation --data ml-1m

    Example: solera bench speed secagg --sizes 100000,1000000 --clients 20

    Example: solera bench speed sketch --data ml-100k --method fedease

    Example: solera bench speed reports --sizes 210 --clients 40

    Example: solera bench speed thresholds --data ml-100k --sizes 1,5,20 -o newest=20
    """
    from solera.core.errors import ConfigError
    from solera.data.datasets import load

    measure = _MEASURES[what]
    named = {"method": method, "rounds": rounds, "threads": threads, "clients": clients, "dropped": dropped}
    more = {"seed": seed, "epochs": epochs, "regs": regs, "users": users, "sizes": sizes}
    asked: dict[str, Any] = named | more | {"option": option, "data": data}
    given = {name: value for name, value in asked.items() if value is not None}
    taken = inspect.signature(measure).parameters
    if wrong := sorted(given.keys() - taken.keys()):
        raise ConfigError(f"speed {what} does not take {wrong[0]}", "omit it")
    if "data" in taken:
        if data is None:
            raise ConfigError(
                "the data set is missing", f"for example: solera bench speed {what} --data ml-100k"
            )
        given["data"] = load(data, data_dir=data_dir)
    if sizes is not None:
        given["sizes"] = parse_numbers(sizes, "--sizes")
        if min(given["sizes"]) < 1:
            raise ConfigError(f"--sizes {sizes!r} is not a list of sizes", "write --sizes 100,1000")
    if regs is not None:
        given["regs"] = parse_numbers(regs, "--regs")
    if option is not None:
        given["option"] = parse_pairs(option, "-o clients_per_round=1.0")
    with err.status("measuring …") as status:
        return measure(lambda step: status.update(f"{step} …"), **given)


def _engine(
    tell: Tell, *, data: Any, method: tuple[str, ...] = ("fedmf",), rounds: int = 3, option: Any = None
) -> Answer:
    """All in one process, in turn, one thread each; and the block engine with two threads."""
    from solera_research.speed.engine import bench_engine

    found = bench_engine(method[0], data, option or {}, rounds=rounds, on_round=tell)
    seconds = found["seconds_per_round"].items()
    return Answer(
        found,
        [
            Table(f"{method[0]} on {data.name}, one thread", ("engine", "s per round"), seconds),
            f"reference / block: {found['block_vs_reference']:.2f}",
            f"one thread / two threads: {found['two_threads_vs_one']:.2f}",
            f"largest relative difference of block and reference: {found['largest_difference']:.1e}",
        ],
    )


def _methods(
    tell: Tell, *, data: Any, method: Any = None, rounds: int = 3, threads: int = 1, option: Any = None
) -> Answer:
    """Each in a separate process."""
    from solera_research.speed.methods import FIVE, bench_methods

    named = method or list(FIVE)
    found = bench_methods(named, data, option or {}, rounds=rounds, threads=threads, on_method=tell)
    rows = (
        (
            entry["method"],
            entry["clients"],
            entry["seconds_per_round"],
            entry["seconds_on_server"],
            entry["peak_bytes"] / 1e9,
            entry["bytes_up"] / 1024,
        )
        for entry in found
    )
    columns = ("method", "clients", "s a round", "of it server", "peak memory, GB", "KiB up a client")
    return Answer(found, [Table(f"{data.name}, {rounds} rounds, threads: {threads}", columns, rows)])


def _evaluation(_: Tell, *, data: Any, rounds: int = 3, threads: int = 2) -> Answer:
    """In a separate process."""
    from solera_research.speed.evaluation import bench_evaluation

    found = bench_evaluation(data, repeats=rounds, threads=threads)
    columns = {
        "users": "users",
        "items": "items",
        "seconds": "s",
        "cpu_seconds": "CPU s",
        "seconds_preparing": "s once, before",
        "peak_gb": "peak memory, GB",
    }
    shown = found | {"peak_gb": found["peak_bytes"] / 1e9}
    return Answer(found, [Table.of(f"Evaluation on {data.name}, threads: {threads}", [shown], columns)])


def _secagg(
    tell: Tell,
    *,
    sizes: tuple[int, ...] = (100_000, 1_000_000),
    clients: int = 20,
    dropped: int = 0,
    rounds: int = 3,
) -> Answer:
    """Also as multiples of the plain sums."""
    from solera_research.speed.secagg import measure

    found = measure(sizes, clients=clients, dropped=dropped, repeats=rounds, on_size=tell)
    said: list[Table | str] = []
    for entry in found:
        rows = [(stage, s, entry["server_seconds"][stage]) for stage, s in entry["client_seconds"].items()]
        plain = ("plain sum", entry["plain_client_seconds"], entry["plain_server_seconds"])
        said += [
            Table(
                f"{entry['values']:,} values, {clients} clients, {dropped} of them drop out",
                ("stage", "s, a client", "s, server"),
                [*rows, plain],
            ),
            f"times plain: client {entry['client_ratio']:.1f}, server {entry['server_ratio']:.1f},"
            f" all together {entry['total_ratio']:.1f}\n"
            f"bytes a client: {entry['bytes_up']:,} up ({entry['bytes_up_ratio']:.3f} times plain),"
            f" {entry['bytes_down']:,} down",
        ]
    return Answer(found, said)


def _sketch(
    tell: Tell,
    *,
    data: Any,
    method: tuple[str, ...] = ("fedease",),
    sizes: tuple[int, ...] = (25, 50, 100, 200, 400),
    seed: int = 0,
    option: Any = None,
) -> Answer:
    """And the bytes under secure aggregation."""
    from solera_research.speed.sketch import sketch_accuracy

    found = sketch_accuracy(method[0], data, sizes, option or {}, seed=seed, on_size=tell)
    rows = (
        (
            "whole sums" if entry["size"] is None else f"{entry['size']}",
            entry["bytes"] / 1e6,
            entry["bytes"] / found[0]["bytes"],
            entry["ndcg@10"],
            entry["hr@10"],
        )
        for entry in found
    )
    columns = ("size", "MB a client", "of the whole", "ndcg@10", "hr@10")
    return Answer(found, [Table(f"{method[0]} on {data.name}, sums sketched, full ranking", columns, rows)])


def _reports(tell: Tell, *, sizes: tuple[int, ...] = (50, 210), clients: int = 40) -> Answer:
    """With a threshold of 20 devices, or of all if they are fewer."""
    from solera_research.speed.reports import measure_reports

    found = measure_reports(sizes, clients=clients, least_devices=min(20, clients), on_size=tell)
    columns = {
        "reports": "reports",
        "least_devices": "T",
        "bytes_up": "bytes up",
        "bytes_down": "bytes down",
        "device": "device, ms",
        "helper": "helper, ms",
        "server": "server, ms",
    }
    return Answer(found, [Table.of(f"Processor time a device, of {clients} devices", found, columns)])


def _thresholds(
    tell: Tell,
    *,
    data: Any,
    method: tuple[str, ...] = ("fedease",),
    sizes: tuple[int, ...] = (1, 2, 5, 10, 20, 50),
    seed: int = 0,
    epochs: int = 1,
    regs: tuple[float, ...] = (1, 3, 10, 30, 100, 300, 1000),
    users: int | None = None,
    option: Any = None,
) -> Answer:
    """With the regularizer that is best on validation items."""
    from solera_research.speed.thresholds import threshold_accuracy

    more: Any = {"seed": seed, "epochs": epochs, "regs": regs, "users": users}
    found = threshold_accuracy(method[0], data, sizes, option or {}, on_size=tell, **more)
    columns = {
        "least_clients": "T",
        "pairs": "pairs",
        "own": "reports of the mean client",
        "reports": "of a message",
        "bytes": "bytes",
        "reg": "reg",
        "ndcg@10": "ndcg@10",
        "hr@10": "hr@10",
    }
    title = f"{method[0]} on {data.name} from pairs that at least T clients have, full ranking"
    return Answer(found, [Table.of(title, found, columns)])


_MEASURES: dict[What, Callable[..., Answer]] = {
    "engine": _engine,
    "methods": _methods,
    "evaluation": _evaluation,
    "secagg": _secagg,
    "sketch": _sketch,
    "reports": _reports,
    "thresholds": _thresholds,
}
