"""The Python interface: load data, train and compare methods, inspect runs, recommend.

Every function takes the same options as the command of the same name; `runs.assembly` handles both.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar

import polars as pl

from solera.core.callable_module import make_callable
from solera.core.closed_form import ClosedForm
from solera.core.errors import SoleraError, in_python
from solera.data import datasets as known_data
from solera.data.interactions import Interactions
from solera.evaluate import Evaluator, Score, split
from solera.evaluate.metrics import CUTOFFS
from solera.methods import find, register
from solera.report import write_report
from solera.runs import Progress, Run
from solera.runs.assembly import chosen_names, run_config
from solera.runs.baseline import BaselineRun, run_baseline
from solera.runs.blending import blend_runs, folder_of
from solera.runs.listing import datasets, methods, presets
from solera.runs.notebook import in_notebook, notebook_progress
from solera.runs.plan import parse_memory
from solera.runs.presets import preset as find_preset
from solera.runs.result import Rankings, RoundEntry, RunResult, metrics_table
from solera.runs.tracking import tracked_train

__all__ = [
    "BaselineRun",
    "Interactions",
    "Progress",
    "RoundEntry",
    "Run",
    "RunResult",
    "baseline",
    "blend",
    "compare",
    "datasets",
    "evaluate",
    "load",
    "methods",
    "open_run",
    "presets",
    "register",
    "report",
    "train",
]

Data = Interactions | str | Path | Any  # anything that `load` takes or returns
P = ParamSpec("P")
R = TypeVar("R")


def _in_python(function: Callable[P, R]) -> Callable[P, R]:
    """Rewrite the hints of errors, so that they name arguments instead of command-line options."""

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except SoleraError as error:
            error.hint = in_python(error.hint)
            raise

    return called


@_in_python
def load(
    source: Data,
    *,
    columns: dict[str, str] | None = None,
    min_interactions: int | None = None,
    data_dir: str | Path | None = None,
    name: str | None = None,
) -> Interactions:
    """Load a data set by name, from a .csv, .tsv or .parquet file, or from a pandas, polars or Arrow table.

    `columns` names the user, item, time and title columns if they have other names: {"user": "who", "item":
    "what"}. Users with fewer than `min_interactions` are left out (5 in files and tables). `name` is the name
    of a table in results.

    Examples:
        >>> import polars
        >>> table = polars.DataFrame({"user": ["a", "a", "b"], "item": ["x", "y", "x"]})
        >>> solera.load(table, min_interactions=0, name="films")
        <films: 2 users, 2 items, 3 interactions>
    """
    if isinstance(source, Interactions):
        return source
    return known_data.load(
        source, columns=columns, min_interactions=min_interactions, data_dir=data_dir, name=name
    )


@_in_python
def train(
    method: str | None = None,
    data: Data = None,
    *,
    preset: str | None = None,
    plugins: Collection[str] = (),
    protocol: str | None = None,
    rounds: int | None = None,
    patience: int | None = None,
    at: Iterable[int] = CUTOFFS,
    select_by: str | None = None,
    evaluate_users: int | None = None,
    evaluate_every: int | None = None,
    test_twice: bool | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    resume: bool = False,
    engine: Literal["block", "reference"] = "block",
    threads: int = 0,
    memory: str | None = None,
    shard_tables: bool = False,
    device: str = "cpu",
    precision: Literal["single", "double"] = "single",
    secure_aggregation: bool = False,
    dp: str | None = None,
    wire: str | None = None,
    upload: str | None = None,
    download: str | None = None,
    mlflow: str | None = None,
    data_dir: str | Path | None = None,
    min_interactions: int | None = None,
    columns: dict[str, str] | None = None,
    on_round: Callable[[Progress], None] | None = None,
    progress: bool = True,
    **options: Any,
) -> Run:
    """Train a method and return the finished run.

    `data` is anything that `solera.load` takes or returns; a `preset` names method and data itself. Further
    keyword arguments are options of the method and of its `plugins`. `at` are the cutoffs of the metrics; 10
    is always among them. `select_by` is the validation metric that selects the round, for example "hr@20".
    Validation takes `evaluate_users` users, by default all up to 10,000, every `evaluate_every` rounds. The
    test takes everybody, with and without the validation item in the model if `test_twice`, by default up to
    100,000 users. With `memory`, for example "8GB", a run that would take more is refused. In a program
    that torchrun starts, `shard_tables` divides item tables among the ranks by rows. `upload` and `download`
    code what clients send and receive in fewer bytes, for example "int8" and "pq:8". `out` names a folder,
    from which `solera.open_run` reads the run. A notebook shows progress, unless `progress` is False.

    Examples:
        >>> run = solera.train("fedmf", "ml-100k", rounds=20, learning_rate=0.02)  # doctest: +SKIP
        >>> run.test["full"]["ndcg@10"]  # doctest: +SKIP
    """
    interactions: Interactions | None = None
    dataset = None
    if data is not None:
        interactions = load(data, columns=columns, min_interactions=min_interactions, data_dir=data_dir)
        origin = interactions.origin
        stated = origin.dataset if origin else interactions.name
        dataset = data if isinstance(data, str) and preset else stated
        columns, min_interactions = (origin.columns, origin.min_interactions) if origin else (None, None)
    config = run_config(
        method,
        dataset,
        preset=preset,
        plugins=plugins,
        options=options,
        protocol=protocol,
        rounds=rounds,
        patience=patience,
        at=tuple(at),
        select_by=select_by,
        evaluate_users=evaluate_users,
        evaluate_every=evaluate_every,
        test_twice=test_twice,
        seed=seed,
        engine=engine,
        precision=precision,
        secure_aggregation=secure_aggregation,
        dp=dp,
        wire=wire,
        upload=upload,
        download=download,
        min_interactions=min_interactions,
        columns=columns,
    )
    if interactions is None:
        interactions = known_data.load(
            config.dataset,
            data_dir=data_dir,
            min_interactions=config.min_interactions,
            columns=config.columns,
        )
    title = f"{config.full_method} on {interactions.name}"
    shown = notebook_progress(title) if progress and in_notebook() else nullcontext()
    with shown as show:

        def after_round(done: Progress) -> None:
            for each in (show, on_round):
                if each is not None:
                    each(done)

        return tracked_train(
            mlflow,
            config,
            interactions,
            out=None if out is None else Path(out),
            resume=resume,
            threads=threads,
            device=device,
            on_round=after_round,
            memory=parse_memory(memory) if memory else None,
            shard_tables=shard_tables,
        )


@_in_python
def baseline(
    name: str | None = None,
    data: Data = None,
    *,
    preset: str | None = None,
    protocol: str = "strict",
    at: Iterable[int] = CUTOFFS,
    seed: int = 0,
    data_dir: str | Path | None = None,
    min_interactions: int | None = None,
    columns: dict[str, str] | None = None,
    **options: Any,
) -> BaselineRun:
    """Fit a centralized baseline under the same protocol. Further keyword arguments are its options.

    `at` are the cutoffs of the metrics; 10 is always among them.

    Examples:
        >>> solera.baseline("ease", "ml-100k", reg=200).metrics  # doctest: +SKIP
    """
    chosen = find_preset(preset) if preset else None
    given = data if isinstance(data, str) else None if data is None else "table"
    named = chosen_names(chosen, "baseline", name, given if chosen is None or data is not None else None, [])
    interactions = load(
        named["dataset"] if data is None else data,
        data_dir=data_dir,
        min_interactions=min_interactions,
        columns=columns,
    )
    taken = dict(chosen.options if chosen else {}) | options
    return run_baseline(named["baseline"], interactions, protocol=protocol, seed=seed, options=taken, at=at)


@_in_python
def compare(
    methods: Iterable[str],
    data: Data,
    *,
    baselines: Iterable[str] = ("popularity", "ease"),
    rounds: int = 20,
    protocol: str = "strict",
    seed: int = 0,
    data_dir: str | Path | None = None,
    min_interactions: int | None = None,
    columns: dict[str, str] | None = None,
    threads: int = 0,
) -> pl.DataFrame:
    """Train methods with default options, with plug-ins as in "fedncf+elastic-merge", and fit baselines.

    Returns one row for each, best first on validation. The metrics are those of the test items in full
    ranking.

    Examples:
        >>> solera.compare(["fedmf", "fedease"], "ml-100k", rounds=10)  # doctest: +SKIP
    """
    interactions = load(data, columns=columns, min_interactions=min_interactions, data_dir=data_dir)
    results = []
    for full in methods:
        name, *plugins = full.split("+")
        many = None if isinstance(find(name, {}, plugins), ClosedForm) else rounds
        run = train(
            name, interactions, plugins=plugins, rounds=many, protocol=protocol, seed=seed, threads=threads
        )
        results.append((full, "federated", run.result))
    for name in baselines:
        fitted = baseline(name, interactions, protocol=protocol, seed=seed)
        results.append((name, "centralized", fitted.result))
    results.sort(key=lambda each: -each[2].validation.full["ndcg@10"])
    rows = [{"method": name, "kind": kind, **result.test.full} for name, kind, result in results]
    return pl.DataFrame(rows)


@_in_python
def evaluate(
    score: Score, data: Data, *, protocol: str = "strict", at: Iterable[int] = CUTOFFS, seed: int = 0
) -> pl.DataFrame:
    """Evaluate your own recommender under a protocol.

    `score` takes user numbers [n] and returns their scores of all items, [n, items], as a tensor. `at` are
    the cutoffs of the metrics; 10 is always among them.
    """
    interactions = load(data)
    evaluator = Evaluator(split(interactions, protocol), seed, at)
    parts = {"test": evaluator.test, "validation": evaluator.validation}
    return metrics_table({part: Rankings.of(rank(score)) for part, rank in parts.items()})


@_in_python
def report(
    runs: Run | str | Path | Iterable[Run | str | Path],
    output: str | Path = "report.html",
    *,
    figures: bool = False,
    no_data: bool = False,
    data_dir: str | Path | None = None,
) -> list[Path]:
    """Write one HTML page about finished runs, with charts, and return the paths of the files written.

    Runs are folders, or `Run`s that were trained with `out`. With `figures`, every chart is also written as
    SVG, PNG and CSV. `no_data` leaves out what needs the data set: intervals and single users.
    """
    listed = [runs] if isinstance(runs, (Run, str, Path)) else list(runs)
    folders = [folder_of(run) for run in listed]
    return write_report(
        folders,
        Path(output),
        figures=figures,
        use_data=not no_data,
        data_dir=None if data_dir is None else Path(data_dir),
    ).written


blend = _in_python(blend_runs)


@_in_python
def open_run(path: str | Path, *, data: Data = None, data_dir: str | Path | None = None) -> Run:
    """Open the folder of a finished run. Its data are loaded again unless they are given."""
    given = None if data is None else load(data)
    return Run.open(path, data=given, data_dir=None if data_dir is None else Path(data_dir))


make_callable("solera.methods", methods)
make_callable("solera.evaluate", evaluate)
make_callable("solera.report", report)
