"""solera data: list data sets, describe them, and audit what they leak."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from solera.cli.catalogue import catalogue, dataset_names
from solera.cli.options import Columns, DataDir, MinInteractions, Protocol, parse_columns
from solera.cli.output import Answer, Line, Table, answers, err, help_if_alone
from solera.cli.output import show as shown
from solera.cli.progress import open_progress

app = typer.Typer(help="Data sets: list, count and audit them.", invoke_without_command=True)
app.callback()(help_if_alone)

NAMED = "A data set's name, or the path of your own .csv, .tsv or .parquet file."


@app.command()
@answers
def show(
    name: Annotated[
        str | None, typer.Argument(help=f"{NAMED} Without it, all are listed.", autocompletion=dataset_names)
    ] = None,
    data_dir: DataDir = None,
    min_interactions: MinInteractions = None,
    columns: Columns = None,
) -> Answer:
    """Count the users, items and interactions of a data set; or list those known, with their licences.

    Example: solera data show

    Example: solera data show ml-100k
    """
    if name is None:
        return _list(data_dir)
    from solera.data.datasets import load, names
    from solera.data.datasets import stats as count

    named = parse_columns(columns)
    data = load(name, data_dir=data_dir, min_interactions=min_interactions, columns=named)
    figures = count(data)
    if name not in names():
        whole = load(name, min_interactions=1, columns=named)
        figures["users_left_out"] = whole.n_users - data.n_users
        figures["rows_left_out"] = len(whole) - len(data)
    rows = [(key.replace("_", " "), value) for key, value in figures.items() if key != "rows_per_user"]
    per_user = " / ".join(map(shown, figures["rows_per_user"].values()))
    rows.append(("rows per user", f"{per_user} (min/median/mean/max)"))
    return Answer({"dataset": data.name, **figures}, [Table(data.name, ("", "value"), rows)])


def _list(data_dir: Path | None) -> Answer:
    from solera.data.files import find

    known = [
        each | {"available": find(each["folder"], each["layouts"], each["archive"], data_dir)}
        for each in catalogue()["datasets"]
    ]
    columns = {key: key for key in ("name", "about", "users", "items", "rows")} | {"available": "found"}
    said: list[Table | Line | str] = [
        Table.of("Data sets", known, columns),
        Line("Licences, as the publishers state them", "bold"),
    ]
    for each in known:  # not a table: an address must stay in one piece
        if each["licence"]:
            said += [f"{each['name']}: {each['licence']['terms']}", Line(f"    {each['licence']['page']}")]
    said.append(Line('found "by hand": the error of `solera data show NAME` says where to get it', "dim"))
    kept = ("name", "about", "page", "licence", "has_time", "available")
    return Answer([{key: each[key] for key in kept} for each in known], said)


@app.command()
@answers
def synthesize(
    output: Annotated[Path, typer.Option("-o", "--output", help="A .parquet or .csv file to write.")],
    users: Annotated[float, typer.Option(help="Number of users.", min=1)] = 1e4,
    items: Annotated[float, typer.Option(help="Number of items.", min=1)] = 2e3,
    interactions: Annotated[float, typer.Option(help="Number of interactions, about.", min=1)] = 2e5,
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.", min=0)] = 0,
) -> Answer:
    """Make a data set of any size, with communities, popular items and an order, for measurements.

    Example: solera data synthesize --users 1e6 --items 1e5 --interactions 2e7 -o million.parquet
    """
    from solera.data.synthetic import World

    world = World(int(users), int(items), int(interactions), seed)
    with open_progress(f"users to {output}", "user") as update:
        world.write(output, lambda done, total: update(done, total, ""))
    return Answer(
        {"written": str(output), "users": world.users, "items": world.items, "seed": seed},
        [
            Line(f"{world.users:,} users, {world.items:,} items: {output}"),
            Line(f"next: solera train fedmf --data {output} --rounds 10", "dim"),
        ],
    )


@app.command()
@answers
def audit(
    name: Annotated[str, typer.Argument(help=NAMED, autocompletion=dataset_names)],
    protocol: Annotated[
        Protocol | None, typer.Option(help="How test items are held out (default: paper and strict).")
    ] = None,
    data_dir: DataDir = None,
    min_interactions: MinInteractions = None,
    columns: Columns = None,
) -> Answer:
    """Show what a data set and a protocol leak about test items before any training.

    With --json and no protocol, there is one document for each of the two.

    Example: solera data audit lastfm-2k --protocol paper
    """
    from solera.data.datasets import load
    from solera.evaluate.audit import audit as examine

    chosen = parse_columns(columns)
    data = load(name, data_dir=data_dir, min_interactions=min_interactions, columns=chosen)
    whole = load(name, data_dir=data_dir, min_interactions=0, columns=chosen)
    found = {}
    for which in (protocol,) if protocol else ("paper", "strict"):
        with err.status(f"auditing {data.name} under {which} …"):
            found[which] = examine(data, which, unfiltered=whole)
    said = [part for which, audited in found.items() for part in _audited(data.name, which, audited)]
    return Answer(found[protocol] if protocol else found, said)


def _audited(name: str, protocol: str, found: dict[str, Any]) -> list[Table | str]:
    apart = ("dataset", "popularity", "verdict")
    rows = [(key.replace("_", " "), shown(value)) for key, value in found.items() if key not in apart]
    for key, label in (("full", "full ranking"), ("sampled99", "99 negatives")):
        figures = found["popularity"][key]
        reached = f"HR@10 {figures['hr@10']:.3f}, NDCG@10 {figures['ndcg@10']:.3f}"
        rows.append((f"popularity, {label}", reached))
    table = Table(f"{name} under {protocol}", ("", "value"), rows, found["leaky"])
    return [table, *(f"• {sentence}" for sentence in found["verdict"])]
