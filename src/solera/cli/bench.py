"""solera bench: measure Solera itself."""

from __future__ import annotations

from typing import Annotated

import typer

from solera.cli.data import DataDir, parse_pairs
from solera.cli.output import Json, err, help_if_alone, out, print_json, table
from solera.cli.runs import Data, Options

app = typer.Typer(help="Measure Solera itself.", invoke_without_command=True)
app.callback()(help_if_alone)


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
