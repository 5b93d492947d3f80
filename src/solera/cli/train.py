"""solera train and blend: from a name to the metrics on test items."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from solera.cli import catalogue
from solera.cli.methods import published_figures
from solera.cli.options import (
    DataDir,
    OptionalData,
    Options,
    Plugins,
    PresetName,
    Threads,
    parse_numbers,
    parse_pairs,
    takes_settings,
)
from solera.cli.output import Answer, Line, answers, duration, err, of_result
from solera.cli.progress import epoch_progress, training_progress
from solera.cli.workers import is_first_rank, is_rank, start_workers
from solera.core.errors import SoleraError

if TYPE_CHECKING:
    from solera.runs import Callback, RunConfig
    from solera.runs.plan import RunPlan
    from solera.runs.training import Training

USUAL_CUTOFFS = "5,10,20,50"
BASELINE_SETTINGS = ("protocol", "seed", "min_interactions", "columns")


@answers
@takes_settings()
def train(
    method: Annotated[
        str | None,
        typer.Argument(
            help="A method or a centralized baseline; `solera methods` lists them.",
            show_default=False,
            autocompletion=catalogue.trained_names,
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
) -> Answer | None:
    """Train a method or a centralized baseline, and print its metrics on test items.

    A baseline leaves no folder, and takes what says how test items are held out and ranked: --protocol,
    --cutoffs, --no-both-tests, --seed, --min-interactions, --columns and its own options.

    Example: solera train fedmf --data ml-100k --rounds 20

    Example: solera train pfedrec --data ml-100k --protocol paper -o learning_rate=0.05

    Example: solera train fedmf --data ml-100k --cutoffs 5,10,100 --metric ndcg@100

    Example: solera train pfedrec --data million.parquet --workers 2 -o clients_per_round=10000

    Example: solera train pfedrec --data million.parquet --memory 8GB --plan

    Example: solera train fedncf --data ml-100k --plugin elastic-merge

    Example: solera train --preset paper:fedrap/ml-100k --seed 1

    Example: solera train fedease --data ml-1m --dp epsilon=8,delta=1e-5,clip=30

    Example: solera train fedhist --data ml-1m --upload int8

    Example: solera train ease --data ml-100k -o reg=200
    """
    from solera.baselines import BASELINES
    from solera.core.errors import ConfigError, closest
    from solera.methods import names
    from solera.runs.callbacks import Tracking
    from solera.runs.federation import check_workers
    from solera.runs.plan import parse_memory
    from solera.runs.presets import is_baseline, run_settings
    from solera.runs.presets import preset as find_preset
    from solera.runs.training import check_folder
    from solera.runs.training import plan as plan_run
    from solera.runs.training import train as train_run

    given = parse_pairs(option or [], "-o learning_rate=0.05")
    known = [*names(), *BASELINES]
    if method and method not in known:
        raise ConfigError(f"unknown method {method!r}", closest(method, known))
    if is_baseline(method, preset):
        others: dict[str, Any] = {
            "plugin": plugin,
            "out": out_dir,
            "resume": resume,
            "threads": threads,
            "workers": workers,
        }
        others |= {"memory": memory, "plan": plan, "device": device != "cpu", "mlflow": mlflow}
        unused = [name for name, value in others.items() if value]
        return _baseline(method, data, preset, given, settings, unused, data_dir)
    config = run_settings(method, data, preset=preset, plugins=plugin or [], options=given, **settings)
    limit = parse_memory(memory) if memory else None
    if plan:
        interactions = config.load_data(data_dir)
        return _planned(plan_run(config, interactions, threads=threads, device=device, memory=limit))
    folder = out_dir or _default_folder(config, resume)
    if not is_rank():  # the first rank checks it itself, and may be started again
        check_folder(folder, config, resume)
    if workers:
        check_workers(config, config.built)
        start_workers(workers, folder)
        return None
    interactions = config.load_data(data_dir)
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
        return None
    said: list[Any] = list(of_result(run.result))
    chosen = find_preset(preset) if preset else None
    if chosen and chosen.published:
        said.append(f"published, sampled: {published_figures(chosen.published)} ({chosen.source})")
    said.append(Line(f"run: {folder}"))
    said.append(Line(f"next: solera recommend {folder} --user {interactions.user_map.id(0)} -k 10", "dim"))
    return Answer({**run.result.document(), "out": str(folder)}, said)


def _baseline(
    name: str | None,
    data: str | None,
    preset: str | None,
    options: dict[str, str],
    settings: dict[str, Any],
    unused: list[str],
    data_dir: Path | None,
) -> Answer:
    from solera.core.errors import ConfigError
    from solera.runs.baseline import run_baseline
    from solera.runs.presets import baseline_settings

    cutoffs = parse_numbers(settings.pop("cutoffs", USUAL_CUTOFFS), "--cutoffs")
    both_tests = settings.pop("both_tests", True)
    unused += [each for each in settings if each not in BASELINE_SETTINGS]
    if unused:
        said = f"--{unused[0].replace('_', '-')} is for federated methods, and {name or preset} is none"
        raise ConfigError(said, "omit it")
    config = baseline_settings(name, data, preset=preset, options=options, **settings)
    interactions = config.load_data(data_dir)
    with epoch_progress(f"{config.baseline} on {interactions.name}") as on_epoch:
        result = run_baseline(
            config.baseline,
            interactions,
            protocol=config.protocol,
            seed=config.seed,
            options=config.options,
            cutoffs=cutoffs,
            both_tests=both_tests,
            on_epoch=on_epoch,
        ).result
    return Answer(result.document(), of_result(result))


@answers
def blend(
    first: Annotated[
        str,
        typer.Argument(help="The folder of a finished run, or the preset of a baseline, which is fitted."),
    ],
    second: Annotated[str, typer.Argument(help="Another one.")],
    out_dir: Annotated[Path | None, typer.Option("--out", help="Folder for the blend.")] = None,
    data_dir: DataDir = None,
) -> Answer:
    """Blend two models: add up their scores, with the weight that is best on validation.

    Both have to score users by their histories, as fedease, fedslist, fedhist and fedsasrec do, and of the
    centralized baselines ease, slist, ials, sasrec, esasrec and hstu.

    Example: solera blend runs/fedslist-beauty-strict-s0 runs/fedsasrec-beauty-strict-s0 --out runs/both

    Example: solera blend central:slist/beauty central:sasrec/beauty
    """
    from solera.runs.blend import blend_runs

    result = blend_runs(first, second, out=out_dir, data_dir=data_dir).result
    return Answer(result.document(), [*of_result(result), f"weight of {second}: {result.options['weight']}"])


def _show_plan(limit: int | None, threads: int, training: Training) -> None:
    """Say what a run takes that has a limit, or many users."""
    from solera.runs.plan import plan_of
    from solera.runs.settings import VALIDATED

    if limit is not None or training.split.data.n_users > VALIDATED:
        err.print(_plan_text(plan_of(training, limit, threads)), highlight=False)


def _planned(plan: RunPlan) -> Answer:
    text = _plan_text(plan)
    try:
        plan.check()
    except SoleraError:
        err.print(text, highlight=False)
        raise
    return Answer({"bytes": plan.bytes, "memory": plan.memory, "seconds": plan.seconds}, [text])


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
