"""solera bench speed: what Solera itself costs."""

from __future__ import annotations

from typing import Annotated

import typer

from solera.cli.options import Data, DataDir, Options, Seed, parse_pairs
from solera.cli.output import Json, err, help_if_alone, out, print_json, table

app = typer.Typer(help="Measure Solera's own speed, memory and traffic.", invoke_without_command=True)
app.callback()(help_if_alone)


@app.command()
def engine(
    data: Data,
    method: Annotated[str, typer.Option(help="Method.")] = "fedmf",
    rounds: Annotated[int, typer.Option(help="Measured rounds of every engine.", min=1)] = 3,
    option: Options = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Measure seconds per round of the block engine and of the reference engine.

    All in one process, in turn, one thread each; and the block engine with two threads.

    Example: solera bench speed engine --data ml-100k --method fedmf
    """
    from solera.data.datasets import load
    from solera_research.speed.engine import bench_engine

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
        ("one thread / two threads", "two_threads_vs_one"),
    ):
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
        typer.Option(
            help="Method, with plug-ins as in fedmf+plgc; repeatable (default: those of the five papers)."
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(help="Measured rounds of every method.", min=1)] = 3,
    threads: Annotated[int, typer.Option(help="Threads.", min=1)] = 1,
    option: Options = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Measure seconds per round and memory of methods, each in a separate process.

    Example: solera bench speed methods --data ml-100k

    Example: solera bench speed methods --data ml-1m --method fedem --threads 2 -o clients_per_round=1.0
    """
    from solera.data.datasets import load
    from solera_research.speed.methods import FIVE, bench_methods

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
    """Measure time and memory of ranking the test items of all users, in a separate process.

    Example: solera bench speed evaluation --data ml-1m
    """
    from solera.data.datasets import load
    from solera_research.speed.evaluation import bench_evaluation

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
def secagg(
    values: Annotated[str, typer.Option(help="Sizes of the vectors.")] = "100000,1000000",
    clients: Annotated[int, typer.Option(help="Members of a round.", min=3, max=1000)] = 20,
    dropped: Annotated[int, typer.Option(help="Clients that drop out before they send values.", min=0)] = 0,
    repeats: Annotated[int, typer.Option(help="Measured rounds of every size.", min=1)] = 3,
    json: Json = False,
) -> None:
    """Measure time and bytes of secure aggregation, also as multiples of those of plain sums.

    Needs the extra `privacy`.

    Example: solera bench speed secagg --values 100000,1000000 --clients 20
    """
    from solera_research.speed.secagg import measure

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
    """Measure accuracy of a one-round method with sketched sums, and bytes under secure aggregation.

    Example: solera bench speed sketch --data ml-100k --method fedease
    """
    from solera.data.datasets import load
    from solera_research.speed.sketch import sketch_accuracy

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
        raise ConfigError(f"{text!r} is not a list of sizes", "give whole numbers, such as 100,1000")
    return sizes
