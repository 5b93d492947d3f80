"""solera train: from a method's name to figures and recommendations."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from solera.cli import completion
from solera.cli.methods import published_figures
from solera.cli.options import DataDir, OptionalData, Options, Plugins, PresetName, Threads, parse_pairs
from solera.cli.output import Json, duration, err, out, print_json, print_result
from solera.cli.progress import training_progress
from solera.cli.settings import takes_settings
from solera.cli.workers import is_first_rank, is_rank, start_workers

if TYPE_CHECKING:
    from solera.runs import Callback, RunConfig
    from solera.runs.plan import RunPlan
    from solera.runs.training import Training


@takes_settings()
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
    option: Options = None,
    *,
    settings: dict[str, Any],
    out_dir: Annotated[
        Path | None, typer.Option("--out", help="Folder of the run (default: a new one under runs/).")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run.")] = False,
    threads: Threads = 0,
    workers: Annotated[
        int,
        typer.Option(
            help="Processes that share the clients, with the same result for any number; 0 for none.", min=0
        ),
    ] = 0,
    memory: Annotated[
        str | None,
        typer.Option(help="Refuse a run that would take more memory, e.g. 8GB. Of each worker, if several."),
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Only say what memory and time the run would take.")
    ] = False,
    device: Annotated[str, typer.Option(help="A torch device; only the CPU is tested.")] = "cpu",
    mlflow: Annotated[
        str | None, typer.Option(help="Log to MLflow as well: a folder, or the URI of a server or data base.")
    ] = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Train a method and print its metrics on test items.

    Example: solera train fedmf --data ml-100k --rounds 20

    Example: solera train pfedrec --data ml-100k --protocol paper -o learning_rate=0.05

    Example: solera train fedmf --data ml-100k --cutoffs 5,10,100 --metric ndcg@100

    Example: solera train pfedrec --data million.parquet --workers 2 -o clients_per_round=10000

    Example: solera train pfedrec --data million.parquet --memory 8GB --plan

    Example: solera train fedncf --data ml-100k --plugin elastic-merge

    Example: solera train --preset paper:fedrap/ml-100k --seed 1

    Example: solera train fedease --data ml-1m --dp epsilon=8,delta=1e-5,clip=30

    Example: solera train fedhist --data ml-1m --upload int8
    """
    from solera.data.datasets import load
    from solera.runs.callbacks import Tracking
    from solera.runs.federation import check_workers
    from solera.runs.plan import parse_memory
    from solera.runs.presets import preset as find_preset
    from solera.runs.presets import run_settings
    from solera.runs.training import check_folder
    from solera.runs.training import plan as plan_run
    from solera.runs.training import train as train_run

    given = parse_pairs(option or [], "-o learning_rate=0.05")
    config = run_settings(method, data, preset=preset, plugins=plugin or [], options=given, **settings)
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
        check_workers(config, config.built)
        start_workers(workers, folder)
        return
    interactions = loaded()
    callbacks: list[Callback] = [Tracking(mlflow, config)] if mlflow else []
    show_plan = partial(_show_plan, limit, threads)
    with training_progress(f"{config.full_method} on {interactions.name}", config.rounds, show_plan) as shown:
        run = train_run(
            config,
            interactions,
            out=folder,
            resume=resume,
            threads=threads,
            device=device,
            memory=limit,
            callbacks=[shown, *callbacks],
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


def _show_plan(limit: int | None, threads: int, training: Training) -> None:
    """Say what a run takes that has a limit, or many users."""
    from solera.runs.plan import plan_of
    from solera.runs.settings import VALIDATED

    if limit is not None or training.split.data.n_users > VALIDATED:
        err.print(_plan_text(plan_of(training, limit, threads)), highlight=False)


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
