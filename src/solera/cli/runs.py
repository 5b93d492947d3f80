"""solera methods, train, recommend, baseline: from a method's name to figures and recommendations."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from solera.cli.data import Columns, DataDir, MinInteractions, parse_columns, parse_pairs
from solera.cli.output import Json, err, out, print_json, print_result, table
from solera.cli.progress import round_progress

if TYPE_CHECKING:
    from solera.runs import RunConfig

Options = Annotated[
    list[str] | None,
    typer.Option("-o", "--option", help="One of the method's options, key=value; repeatable."),
]
Data = Annotated[
    str, typer.Option("--data", help="A data set's name, or your own .csv, .tsv or .parquet file.")
]
ProtocolName = Annotated[str, typer.Option(help="strict, paper (leaky) or global-time.")]
Seed = Annotated[int, typer.Option(help="Everything random follows from it.", min=0)]


def methods(
    name: Annotated[str | None, typer.Argument(help="Show this method's options.")] = None, json: Json = False
) -> None:
    """The methods and their five choices, or one method's options.

    Example: solera methods pfedrec
    """
    from solera.methods import METHODS, build

    if name is not None:
        built = build(name)
        fields = type(built.config).model_fields
        values = built.config.model_dump(mode="json")
        options = [
            {"option": key, "default": values[key], "about": fields[key].description} for key in fields
        ]
        if json:
            print_json({"name": name, **built.choices, "paper": built.paper, "options": options})
            return
        out.print(f"[bold]{name}[/] ({built.paper}): {' × '.join(built.choices.values())}")
        table(
            "options",
            ("-o", "default", "about"),
            ((o["option"], str(o["default"]), o["about"]) for o in options),
        )
        return
    listed = [{"name": key, **build(key).choices, "paper": build(key).paper} for key in METHODS]
    if json:
        print_json(listed)
        return
    table("Methods", listed[0], (entry.values() for entry in listed))


def train(
    method: Annotated[str, typer.Argument(help="A method; `solera methods` lists them.")],
    data: Data,
    protocol: ProtocolName = "strict",
    rounds: Annotated[int, typer.Option(help="Rounds of federated training.", min=1)] = 100,
    seed: Seed = 0,
    option: Options = None,
    out_dir: Annotated[
        Path | None, typer.Option("--out", help="Folder of the run (default: a new one under runs/).")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run.")] = False,
    engine: Annotated[str, typer.Option(help="block (fast) or reference (the specification).")] = "block",
    threads: Annotated[
        int, typer.Option(help="Threads; 0 for one per core. Never changes figures.", min=0)
    ] = 0,
    device: Annotated[str, typer.Option(help="A torch device; only the CPU is tested.")] = "cpu",
    precision: Annotated[str, typer.Option(help="single or double.")] = "single",
    data_dir: DataDir = None,
    min_interactions: MinInteractions = None,
    columns: Columns = None,
    json: Json = False,
) -> None:
    """Train a method and print honest figures.

    Example: solera train fedmf --data ml-100k --rounds 20

    Example: solera train pfedrec --data ml-100k --protocol paper -o learning_rate=0.05
    """
    from solera.core.errors import ConfigError
    from solera.data.datasets import load
    from solera.evaluate import get
    from solera.methods import build
    from solera.runs import RunConfig
    from solera.runs import train as run_training

    for given, known, name in (
        (engine, ("block", "reference"), "engine"),
        (precision, ("single", "double"), "precision"),
    ):
        if given not in known:
            raise ConfigError(f"unknown {name} {given!r}", f"known: {', '.join(known)}")
    get(protocol)
    built = build(method, parse_pairs(option or [], "-o learning_rate=0.05"))
    config = RunConfig.model_validate(
        {
            "method": method,
            "dataset": data,
            "options": built.config.model_dump(mode="json"),
            "protocol": protocol,
            "rounds": rounds,
            "seed": seed,
            "engine": engine,
            "precision": precision,
            "min_interactions": min_interactions,
            "columns": parse_columns(columns),
        }
    )
    folder = out_dir or _default_folder(config, resume)
    interactions = load(data, data_dir=data_dir, min_interactions=min_interactions, columns=config.columns)
    with round_progress(f"{method} on {interactions.name}", rounds) as on_round:
        run = run_training(
            config, interactions, out=folder, resume=resume, threads=threads, device=device, on_round=on_round
        )
    if json:
        print_json({**run.result, "out": str(folder)})
        return
    print_result(run.result)
    out.print(f"run: {folder}", highlight=False)
    some_user = interactions.user_map.id(0)
    out.print(f"next: solera recommend {folder} --user {some_user} -k 10", style="dim", highlight=False)


def _default_folder(config: RunConfig, resume: bool) -> Path:
    """A new folder under runs/, or with --resume the latest unfinished one of the same settings."""
    from solera.core.errors import RunError
    from solera.runs import RunFolder

    stem = f"{config.method}-{Path(config.dataset).stem}-{config.protocol}-s{config.seed}"
    root = Path("runs")
    if resume:
        for path in sorted(root.glob(f"{stem}*"), key=lambda p: p.stat().st_mtime, reverse=True):
            if (path / "config.json").exists():
                folder = RunFolder.open(path)
                if folder.result is None and not config.difference(folder.config):
                    return path
        raise RunError(
            f"no unfinished run of these settings under {root}/", "leave --resume out, or give its --out"
        )
    number = 1
    while (root / (name := stem if number == 1 else f"{stem}-{number}")).exists():
        number += 1
    return root / name


def recommend(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    user: Annotated[str, typer.Option(help="A user's id, as the data set gives it.")],
    k: Annotated[int, typer.Option("-k", help="How many items.", min=1)] = 10,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """What a user's device would show; items the user already knows are left out.

    Example: solera recommend runs/fedmf-ml-100k-strict-s0 --user 196 -k 10
    """
    from solera.runs import Run

    opened = Run.open(run, data_dir=data_dir)
    found = opened.recommend(user, k)
    if json:
        print_json({"run": str(run), "user": user, "items": [item._asdict() for item in found]})
        return
    rows = ((item.rank, item.item, item.title, item.score) for item in found)
    table(f"For user {user}", ("#", "item", "title", "score"), rows, leaky=opened.result["leaky"])


def baseline(
    name: Annotated[str, typer.Argument(help="popularity or ease.")],
    data: Data,
    protocol: ProtocolName = "strict",
    seed: Seed = 0,
    option: Options = None,
    data_dir: DataDir = None,
    min_interactions: MinInteractions = None,
    columns: Columns = None,
    json: Json = False,
) -> None:
    """A centralized baseline under the same protocol: what a federated method has to be held against.

    Example: solera baseline ease --data ml-100k -o reg=200
    """
    from solera.data.datasets import load
    from solera.runs.baseline import evaluate_baseline

    options = parse_pairs(option or [], "-o reg=200")
    interactions = load(
        data, data_dir=data_dir, min_interactions=min_interactions, columns=parse_columns(columns)
    )
    with err.status(f"{name} on {interactions.name} …"):
        result = evaluate_baseline(name, interactions, protocol=protocol, seed=seed, options=options)
    if json:
        print_json(result)
    else:
        print_result(result)
