"""solera data: list data sets, describe them, and audit what they leak."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from solera.cli import completion
from solera.cli.catalogue import catalogue
from solera.cli.options import Columns, DataDir, MinInteractions, Protocol, parse_columns
from solera.cli.output import Json, err, help_if_alone, out, print_json, show, table

app = typer.Typer(help="Data sets: list them, count them, audit them.", invoke_without_command=True)
app.callback()(help_if_alone)

Name = Annotated[
    str,
    typer.Argument(
        help="A data set's name, or the path of your own .csv, .tsv or .parquet file.",
        autocompletion=completion.datasets,
    ),
]


@app.command("list")
def list_(data_dir: DataDir = None, json: Json = False) -> None:
    """List the known data sets, where each is loaded from, and its licence.

    Example: solera data list
    """
    from solera.data.files import find

    known = catalogue()["datasets"]
    places = [find(each["folder"], each["layouts"], each["archive"], data_dir) for each in known]
    if json:
        shown = ("name", "about", "page", "licence", "has_time")
        print_json(
            [
                {key: each[key] for key in shown} | {"available": place}
                for each, place in zip(known, places, strict=True)
            ]
        )
        return
    table(
        "Data sets",
        ("name", "about", "users", "items", "rows", "found"),
        (
            (*(each[key] for key in ("name", "about", "users", "items", "rows")), place)
            for each, place in zip(known, places, strict=True)
        ),
    )
    out.print("Licences, as the publishers state them", style="bold")
    for each in known:  # not a table: an address must stay in one piece
        out.print(f"{each['name']}: {each['licence']['terms']}", highlight=False)
        out.print(f"    {each['licence']['page']}", soft_wrap=True)
    out.print()
    out.print('found "by hand": the error of `solera data stats NAME` says where to get it', style="dim")


@app.command()
def synthesize(
    output: Annotated[Path, typer.Option("-o", "--output", help="A .parquet or .csv file to write.")],
    users: Annotated[float, typer.Option(help="Number of users.", min=1)] = 1e4,
    items: Annotated[float, typer.Option(help="Number of items.", min=1)] = 2e3,
    interactions: Annotated[float, typer.Option(help="Number of interactions, about.", min=1)] = 2e5,
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.", min=0)] = 0,
    json: Json = False,
) -> None:
    """Make a data set of any size, with communities, popular items and an order, for measurements.

    Example: solera data synthesize --users 1e6 --items 1e5 --interactions 2e7 -o million.parquet
    """
    from solera.cli.progress import open_progress
    from solera.data.synthetic import World

    world = World(int(users), int(items), int(interactions), seed)
    with open_progress(f"users to {output}", "user") as update:
        world.write(output, lambda done, total: update(done, total, ""))
    made = {"written": str(output), "users": world.users, "items": world.items, "seed": seed}
    if json:
        print_json(made)
        return
    out.print(f"{world.users:,} users, {world.items:,} items: {output}", highlight=False)
    out.print(f"next: solera train fedmf --data {output} --rounds 10", style="dim", highlight=False)


@app.command()
def clear(json: Json = False) -> None:
    """Delete the converted copies of data sets that make loading fast. They are made again when needed.

    Example: solera data clear
    """
    from solera.data.files import clear as delete
    from solera.data.files import converted_dir

    folder, size = converted_dir(), delete()
    if json:
        print_json({"folder": str(folder), "bytes": size})
    else:
        out.print(f"deleted {size / 1e6:,.1f} MB in {folder}", highlight=False)


@app.command()
def stats(
    name: Name,
    data_dir: DataDir = None,
    min_interactions: MinInteractions = None,
    columns: Columns = None,
    json: Json = False,
) -> None:
    """Show the numbers of users, items and interactions of a data set.

    Example: solera data stats ml-100k
    """
    from solera.data.datasets import load
    from solera.data.datasets import stats as count

    data = load(name, data_dir=data_dir, min_interactions=min_interactions, columns=parse_columns(columns))
    figures = {"dataset": data.name, **count(data)}
    if json:
        print_json(figures)
        return
    per_user = figures.pop("rows_per_user")
    rows = [(key.replace("_", " "), value) for key, value in figures.items()]
    rows.append(
        ("rows per user", " / ".join(show(value) for value in per_user.values()) + " (min/median/mean/max)")
    )
    table(f"{data.name}", ("", "value"), rows)


@app.command()
def audit(
    name: Name,
    protocol: Annotated[
        Protocol | None, typer.Option(help="How test items are held out (default: paper and strict).")
    ] = None,
    data_dir: DataDir = None,
    min_interactions: MinInteractions = None,
    columns: Columns = None,
    json: Json = False,
) -> None:
    """Show what a data set and a protocol leak about test items before any training.

    With --json and no protocol, the papers' handling is audited, for that is where the faults are.

    Example: solera data audit lastfm-2k --protocol paper
    """
    from solera.data.datasets import load
    from solera.evaluate.audit import audit as examine

    chosen = parse_columns(columns)
    data = load(name, data_dir=data_dir, min_interactions=min_interactions, columns=chosen)
    whole = load(name, data_dir=data_dir, min_interactions=0, columns=chosen)
    if json:
        print_json(examine(data, protocol or "paper", unfiltered=whole))
        return
    for which in (protocol,) if protocol else ("paper", "strict"):
        with err.status(f"auditing {data.name} under {which} …"):
            found = examine(data, which, unfiltered=whole)
        popularity, verdict = found.pop("popularity"), found.pop("verdict")
        rows = [(key.replace("_", " "), _plain(value)) for key, value in found.items() if key != "dataset"]
        rows += [
            (
                f"popularity, {label}",
                f"HR@10 {popularity[key]['hr@10']:.3f}, NDCG@10 {popularity[key]['ndcg@10']:.3f}",
            )
            for key, label in (("full", "full ranking"), ("sampled99", "99 negatives"))
        ]
        table(f"{data.name} under {which}", ("", "value"), rows, leaky=found["leaky"])
        for sentence in verdict:
            out.print(f"• {sentence}", highlight=False)
        out.print()


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {show(inner)}" for key, inner in value.items())
    return show(value)
