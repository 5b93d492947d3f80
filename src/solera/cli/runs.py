"""solera train: from a method's name to figures and recommendations."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from solera.cli import completion
from solera.cli.data import (
    Columns,
    DataDir,
    MinInteractions,
    Protocol,
    parse_columns,
    parse_numbers,
    parse_pairs,
)
from solera.cli.methods import Plugins, published_figures
from solera.cli.output import Json, duration, err, out, print_json, print_result
from solera.cli.progress import step_progress
from solera.cli.workers import is_first_rank, is_rank, start_workers

if TYPE_CHECKING:
    from solera.runs import RunConfig
    from solera.runs.plan import RunPlan

Options = Annotated[
    list[str] | None,
    typer.Option("-o", "--option", help="One of the method's options, key=value; repeatable."),
]
_DATA = typer.Option(
    "--data",
    help="A data set's name, or your own .csv, .tsv or .parquet file.",
    autocompletion=completion.datasets,
)
Data = Annotated[str, _DATA]
OptionalData = Annotated[str | None, _DATA]
ProtocolName = Annotated[
    Protocol, typer.Option(help="How test items are held out; `paper` leaks them into training.")
]
PresetName = Annotated[
    str | None,
    typer.Option(
        "--preset",
        help="Named settings (`solera presets` lists them) or a .toml file, instead of a method.",
        autocompletion=completion.presets,
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of all random numbers.", min=0)]
DifferentialPrivacy = Annotated[
    str | None,
    typer.Option(
        "--dp",
        help="User-level differential privacy: epsilon=8,delta=1e-5[,clip=1]"
        "[,mode=central|local|distributed][,accountant=pld|rdp][,adaptive=0.5]; or noise=1.1,delta=1e-5.",
    ),
]
Wire = Annotated[
    str | None,
    typer.Option(help="paper-laplace=0.5: add the papers' noise to uploads, without a privacy guarantee."),
]
Upload = Annotated[
    str | None,
    typer.Option(help="Shorten what clients send: int8, top-k:0.1, low-rank:4 or sketch:0.25."),
]
Download = Annotated[
    str | None,
    typer.Option(help="Shorten what clients receive: int8, pq:8, rq:8, delta, slice:0.1, rq:6+own, …"),
]
USUAL_CUTOFFS = "5,10,20,50"
Cutoffs = Annotated[str, typer.Option("--at", help="Cutoffs of the metrics; 10 is always among them.")]
Threads = Annotated[
    int, typer.Option(help="Number of threads; 0 for one per core. Does not change results.", min=0)
]


def train(
    method: Annotated[
        str | None,
        typer.Argument(
            help="A method; `solera methods` lists them.",
            show_default=False,
            autocompletion=completion.methods,
        ),
    ] = None,
    data: OptionalData = None,
    preset: PresetName = None,
    plugin: Plugins = None,
    protocol: Annotated[
        Protocol | None, typer.Option(help="How items are held out (default strict); paper is leaky.")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(help="Rounds of federated training (default 100).", min=1)
    ] = None,
    patience: Annotated[
        int | None, typer.Option(help="End after so many rounds that are no better on validation.", min=1)
    ] = None,
    at: Cutoffs = USUAL_CUTOFFS,
    select_by: Annotated[
        str | None,
        typer.Option(
            help="Validation metric that selects the round, e.g. hr@20 (default: the protocol's).",
            metavar="METRIC",
        ),
    ] = None,
    evaluate_users: Annotated[
        int | None,
        typer.Option(help="Users that are validated in a round (default: all, up to 10,000).", min=1),
    ] = None,
    evaluate_every: Annotated[
        int | None, typer.Option(help="Validate after every so many rounds; 1 unless a preset says.", min=1)
    ] = None,
    test_twice: Annotated[
        bool | None,
        typer.Option(
            "--test-twice/--test-once",
            help="Rank test items with and without the validation item in the model, or only with the model "
            "as trained (default: twice up to 100,000 users).",
            show_default=False,
        ),
    ] = None,
    seed: Seed = 0,
    option: Options = None,
    out_dir: Annotated[
        Path | None, typer.Option("--out", help="Folder of the run (default: a new one under runs/).")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run.")] = False,
    engine: Annotated[
        Literal["block", "reference"], typer.Option(help="The fast one, or the specification.")
    ] = "block",
    threads: Threads = 0,
    workers: Annotated[
        int,
        typer.Option(
            help="Processes that share the clients, with the same result for any number; 0 for none.", min=0
        ),
    ] = 0,
    shard_tables: Annotated[
        bool,
        typer.Option(
            "--shard-tables",
            help="With several workers: each holds some rows of the item tables, not all of them.",
        ),
    ] = False,
    memory: Annotated[
        str | None,
        typer.Option(help="Refuse a run that would take more memory, e.g. 8GB. Of each worker, if several."),
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Only say what memory and time the run would take.")
    ] = False,
    device: Annotated[str, typer.Option(help="A torch device; only the CPU is tested.")] = "cpu",
    precision: Annotated[Literal["single", "double"], typer.Option(help="Of all numbers.")] = "single",
    secure_aggregation: Annotated[
        bool,
        typer.Option("--secure-aggregation", help="Add uploads in fixed point, as they are under masks."),
    ] = False,
    dp: DifferentialPrivacy = None,
    wire: Wire = None,
    upload: Upload = None,
    download: Download = None,
    mlflow: Annotated[
        str | None, typer.Option(help="Log to MLflow as well: a folder, or the URI of a server or data base.")
    ] = None,
    data_dir: DataDir = None,
    min_interactions: MinInteractions = None,
    columns: Columns = None,
    json: Json = False,
) -> None:
    """Train a method and print its metrics on test items.

    Example: solera train fedmf --data ml-100k --rounds 20

    Example: solera train pfedrec --data ml-100k --protocol paper -o learning_rate=0.05

    Example: solera train fedmf --data ml-100k --at 5,10,100 --select-by ndcg@100

    Example: solera train pfedrec --data million.parquet --workers 2 -o clients_per_round=10000

    Example: solera train fedmf --data million.parquet --workers 4 --shard-tables -o embedding_size=256

    Example: solera train pfedrec --data million.parquet --memory 8GB --plan

    Example: solera train fedncf --data ml-100k --with elastic-merge

    Example: solera train --preset paper:fedrap/ml-100k --seed 1

    Example: solera train fedease --data ml-1m --dp epsilon=8,delta=1e-5,clip=30

    Example: solera train fedhist --data ml-1m --upload int8 --download pq:8
    """
    from solera.core.errors import ConfigError
    from solera.data.datasets import load
    from solera.methods import find
    from solera.runs.assembly import run_config
    from solera.runs.federation import check_workers
    from solera.runs.plan import parse_memory
    from solera.runs.presets import preset as find_preset
    from solera.runs.tracking import tracked_train
    from solera.runs.training import check_folder
    from solera.runs.training import plan as plan_run

    config = run_config(
        method,
        data,
        preset=preset,
        plugins=plugin or [],
        options=parse_pairs(option or [], "-o learning_rate=0.05"),
        protocol=protocol,
        rounds=rounds,
        patience=patience,
        at=parse_numbers(at, "--at"),
        select_by=select_by,
        evaluate_users=evaluate_users,
        evaluate_every=evaluate_every,
        test_twice=test_twice,
        seed=seed,
        engine=engine,
        precision=precision,
        min_interactions=min_interactions,
        columns=parse_columns(columns),
        secure_aggregation=secure_aggregation,
        dp=dp,
        wire=wire,
        upload=upload,
        download=download,
    )
    if shard_tables and not (workers or is_rank()):
        raise ConfigError("--shard-tables divides tables among workers", "give --workers, or use torchrun")
    limit = parse_memory(memory) if memory else None
    loaded = partial(
        load,
        config.dataset,
        data_dir=data_dir,
        min_interactions=config.min_interactions,
        columns=config.columns,
    )
    if plan:
        _print_plan(plan_run(config, loaded(), threads=threads, device=device, memory=limit), json)
        return
    folder = out_dir or _default_folder(config, resume)
    if not is_rank():  # the first rank checks it itself, and may be started again
        check_folder(folder, config, resume)
    if workers:
        found = find(config.method, config.options, config.plugins)
        check_workers(config, found, shard_tables=shard_tables)
        start_workers(workers, folder)
        return
    interactions = loaded()
    title = f"{config.full_method} on {interactions.name}"
    with step_progress(title, config.rounds) as show_step:
        run = tracked_train(
            mlflow,
            config,
            interactions,
            out=folder,
            resume=resume,
            threads=threads,
            device=device,
            on_round=lambda done: show_step(done.rounds_done, done.figures),
            on_clients=lambda done, clients: show_step(0, f"client {done:,} of {clients:,}"),
            on_users=lambda done, users: show_step(config.rounds, f"test: user {done:,} of {users:,}"),
            memory=limit,
            shard_tables=shard_tables,
            on_plan=lambda found: err.print(_plan_text(found), highlight=False),
        )
    if not is_first_rank():
        return
    if json:
        print_json({**run.result.document(), "out": str(folder)})
        return
    print_result(run.result)
    chosen = find_preset(preset) if preset else None
    if chosen and chosen.published:
        out.print(
            f"published, sampled: {published_figures(chosen.published)} ({chosen.source})", highlight=False
        )
    out.print(f"run: {folder}", highlight=False)
    some_user = interactions.user_map.id(0)
    out.print(f"next: solera recommend {folder} --user {some_user} -k 10", style="dim", highlight=False)


def _print_plan(plan: RunPlan, json: bool) -> None:
    if json:
        print_json({"bytes": plan.bytes, "memory": plan.memory, "seconds": plan.seconds})
    else:
        out.print(_plan_text(plan), highlight=False)
    plan.check()


def _plan_text(plan: RunPlan) -> str:
    parts = ", ".join(f"{part} {size / 1e9:.2g}" for part, size in plan.memory.items() if size > 5e6)
    limit = "" if plan.limit is None else f" of {plan.limit / 1e9:.3g}"
    text = f"plan: about {plan.bytes / 1e9:.2g}{limit} GB of memory ({parts})"
    if plan.seconds:
        parts = ", ".join(f"{part} {duration(each)}" for part, each in plan.seconds.items())
        text += f"; about {duration(sum(plan.seconds.values()))} ({parts})"
    return text


def _default_folder(config: RunConfig, resume: bool) -> Path:
    """A new folder under runs/, or with --resume the latest unfinished one of the same settings."""
    from solera.core.errors import RunError
    from solera.runs import RunFolder

    stem = f"{config.full_method}-{Path(config.dataset).stem}-{config.protocol}-s{config.seed}"
    root = Path("runs")
    if resume:
        for path in sorted(root.glob(f"{stem}*"), key=lambda p: p.stat().st_mtime, reverse=True):
            if (path / "config.json").exists():
                folder = RunFolder.open(path)
                if folder.result is None and not config.difference(folder.config):
                    return path
        raise RunError(
            f"no unfinished run with these settings under {root}/",
            "omit --resume, or give the run's folder with --out",
        )
    number = 1
    while (root / (name := stem if number == 1 else f"{stem}-{number}")).exists():
        number += 1
    return root / name
