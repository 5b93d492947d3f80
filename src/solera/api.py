"""The Python interface: load data, train and compare methods, inspect runs, recommend.

Every function takes the same options as the command of the same name; both are made from `runs.settings`.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import polars as pl

from solera.baselines import BASELINES
from solera.data import datasets as known_data
from solera.data.interactions import Interactions
from solera.data.registry import register_dataset
from solera.estimators import NAMES, Model, estimator, load_model
from solera.evaluate import Evaluator, Score, split
from solera.evaluate.metrics import CUTOFFS, register_metric
from solera.methods import PLUGINS, find, names, register, register_method
from solera.report import write_report
from solera.runs.baseline import BaselineRun, run_baseline
from solera.runs.blend import blend_runs as blend
from solera.runs.blend import folder_of
from solera.runs.callbacks import Notebook, Tracking, in_notebook
from solera.runs.plan import parse_memory
from solera.runs.presets import chosen_names, methods_and_baselines, run_settings
from solera.runs.presets import preset as find_preset
from solera.runs.presets import presets as known_presets
from solera.runs.result import Progress, Rankings, RoundEntry, RunResult, metrics_table
from solera.runs.run import Run
from solera.runs.settings import RENAMED, SETTINGS, RunConfig
from solera.runs.training import Callback
from solera.runs.training import train as train_run

__all__ = [
    "BaselineRun",
    "Callback",
    "Interactions",
    "Progress",
    "RoundEntry",
    "Run",
    "RunResult",
    "baseline",
    "blend",
    "compare",
    "datasets",
    "estimator",
    "evaluate",
    "load",
    "load_model",
    "methods",
    "open_run",
    "presets",
    "register",
    "register_dataset",
    "register_method",
    "register_metric",
    "report",
    "train",
]

Data = Interactions | str | Path | Any  # anything that `load` takes or returns
F = TypeVar("F", bound=Callable[..., Any])


def methods() -> pl.DataFrame:
    """A table of all methods, their parts and their papers, followed by the plug-ins for `plugins`."""
    rows = [{"name": name, **find(name).choices, "paper": find(name).paper} for name in names()]
    rows += [{"name": f"+{name}", "paper": plugin.about} for name, plugin in PLUGINS.items()]
    rows += [{"name": name, "paper": "centralized baseline"} for name in BASELINES]
    return pl.DataFrame(rows, infer_schema_length=None)


def datasets() -> pl.DataFrame:
    """A table of the data sets that can be loaded by name, and where each would be loaded from."""
    return pl.DataFrame([{"name": name, "from": known_data.available(name)} for name in known_data.names()])


def presets() -> pl.DataFrame:
    """A table of presets: published rows, and the best settings from equal tuning."""
    return pl.DataFrame(
        [
            {"name": each.name, "method": each.full_method, "dataset": each.dataset, "source": each.source}
            for each in known_presets().values()
        ]
    )


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


def _made_from_settings(function: F) -> F:
    """Show the settings of a run among the function's parameters, and what they mean in its docstring."""
    signature = inspect.signature(function)
    given = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    more = [p for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD]
    fields = {name: RunConfig.model_fields[name] for name in SETTINGS}
    made = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.annotation
        )
        for name, field in fields.items()
    ]
    about = "\n".join(f"        {name}: {field.description}" for name, field in fields.items())
    function.__signature__ = signature.replace(parameters=[*given, *made, *more])  # type: ignore[attr-defined]
    function.__doc__ = f"{function.__doc__}\n    Settings:\n{about}\n    "
    return function


@_made_from_settings
def train(
    method: str | None = None,
    data: Data = None,
    *,
    preset: str | None = None,
    plugins: Collection[str] = (),
    out: str | Path | None = None,
    resume: bool = False,
    threads: int = 0,
    memory: str | None = None,
    device: str = "cpu",
    mlflow: str | None = None,
    data_dir: str | Path | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool = True,
    **options: Any,
) -> Run:
    """Train a method and return the finished run.

    `data` is anything that `solera.load` takes or returns; a `preset` names method and data itself. Further
    keyword arguments are settings of the run, listed below, or options of the method and of its `plugins`.
    With `memory`, for example "8GB", a run that would take more is refused. `out` names a folder, from which
    `solera.open_run` reads the run. `callbacks` hear of every round. A notebook shows progress, unless
    `progress` is False.

    Examples:
        >>> run = solera.train("fedmf", "ml-100k", rounds=20, learning_rate=0.02)  # doctest: +SKIP
        >>> run.test["full"]["ndcg@10"]  # doctest: +SKIP
    """
    settings = {name: options.pop(name) for name in SETTINGS if name in options}
    for old, new in RENAMED.items():
        if old in options:
            warnings.warn(f"{old} is now called {new}", FutureWarning, stacklevel=2)
            settings[new] = options.pop(old)
    interactions: Interactions | None = None
    dataset = None
    if data is not None:
        where = {name: settings.pop(name, None) for name in ("columns", "min_interactions")}
        interactions = load(data, **where, data_dir=data_dir)
        origin = interactions.origin
        stated = origin.dataset if origin else interactions.name
        dataset = data if isinstance(data, str) and preset else stated
        if origin:
            settings |= {"columns": origin.columns, "min_interactions": origin.min_interactions}
    config = run_settings(method, dataset, preset=preset, plugins=plugins, options=options, **settings)
    if interactions is None:
        interactions = config.load_data(data_dir)
    listed: list[Callback] = [*callbacks, *([Tracking(mlflow, config)] if mlflow else [])]
    if progress and in_notebook():
        listed.insert(0, Notebook(f"{config.full_method} on {interactions.name}"))
    return train_run(
        config,
        interactions,
        out=None if out is None else Path(out),
        resume=resume,
        threads=threads,
        device=device,
        memory=parse_memory(memory) if memory else None,
        callbacks=listed,
    )


def baseline(
    name: str | None = None,
    data: Data = None,
    *,
    preset: str | None = None,
    protocol: str = "strict",
    cutoffs: Iterable[int] = CUTOFFS,
    seed: int = 0,
    data_dir: str | Path | None = None,
    min_interactions: int | None = None,
    columns: dict[str, str] | None = None,
    **options: Any,
) -> BaselineRun:
    """Fit a centralized baseline under the same protocol. Further keyword arguments are its options.

    `cutoffs` are those of the metrics; 10 is always among them.

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
    return run_baseline(
        named["baseline"], interactions, protocol=protocol, seed=seed, options=taken, cutoffs=cutoffs
    )


def compare(
    methods: Iterable[str],
    data: Data,
    *,
    baselines: Iterable[str] | None = None,
    rounds: int = 20,
    protocol: str = "strict",
    seed: int = 0,
    data_dir: str | Path | None = None,
    min_interactions: int | None = None,
    columns: dict[str, str] | None = None,
    threads: int = 0,
) -> pl.DataFrame:
    """Train methods with default options, with plug-ins as in "fedncf+elastic-merge", and fit baselines.

    `methods` names both, and "local", which trains every user alone. If it has no centralized baseline,
    popularity and ease are added. `baselines` is the former place of their names.

    Returns one row for each, best first on validation. The metrics are those of the test items in full
    ranking.

    Examples:
        >>> solera.compare(["fedmf", "fedease", "local"], "ml-100k", rounds=10)  # doctest: +SKIP
    """
    interactions = load(data, columns=columns, min_interactions=min_interactions, data_dir=data_dir)
    results = []
    if baselines is None:
        named, baselines = methods_and_baselines(methods)
    else:
        warnings.warn("baselines are now named beside the methods", FutureWarning, stacklevel=3)
        named = list(methods)
    for full in named:
        name, *plugins = full.split("+")
        many = None if find(name, {}, plugins).one_round else rounds
        run = train(
            name, interactions, plugins=plugins, rounds=many, protocol=protocol, seed=seed, threads=threads
        )
        results.append((full, "federated", run.result))
    for name in baselines:
        fitted = baseline(name, interactions, protocol=protocol, seed=seed)
        results.append((name, "centralized", fitted.result))
    results.sort(key=lambda each: -each[2].validation.full["ndcg@10"])
    return pl.DataFrame(
        [
            {"method": name, "kind": kind, "test": tested, **test.full}
            for name, kind, result in results
            for tested, test in [result.main]
        ]
    )


def evaluate(
    score: Score | Model,
    data: Data,
    *,
    protocol: str = "strict",
    cutoffs: Iterable[int] = CUTOFFS,
    seed: int = 0,
) -> pl.DataFrame:
    """Evaluate a model, or your own recommender, under a protocol.

    A model, such as `solera.FedEASE(reg=500)`, is fitted to the training items alone; itself it stays as it
    is. A function takes user numbers [n] and returns their scores of all items, [n, items], as a tensor.
    `cutoffs` are those of the metrics; 10 is always among them.
    """
    if isinstance(score, Model):
        options = {"seed": seed} | score.changed
        interactions = load(data, min_interactions=options.pop("min_interactions", None))
        held: dict[str, Any] = {"protocol": protocol, "cutoffs": tuple(cutoffs), **options}
        if score.method in BASELINES:
            return baseline(score.method, interactions, **held).metrics
        return train(score.method, interactions, progress=False, **held).metrics
    interactions = load(data)
    evaluator = Evaluator(split(interactions, protocol), seed, cutoffs)
    parts = {"test": evaluator.test, "validation": evaluator.validation}
    return metrics_table({part: Rankings.of(rank(score)) for part, rank in parts.items()})


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


def open_run(path: str | Path, *, data: Data = None, data_dir: str | Path | None = None) -> Run:
    """Open the folder of a finished run. Its data are loaded again unless they are given."""
    given = None if data is None else load(data)
    return Run.open(path, data=given, data_dir=None if data_dir is None else Path(data_dir))


# These packages can be called, because importing a package hides a function of the same name.
for _function in (methods, evaluate, report):
    _callable = {"__call__": staticmethod(_function)}
    sys.modules[f"solera.{_function.__name__}"].__class__ = type("CallableModule", (ModuleType,), _callable)


def __getattr__(name: str) -> Any:
    """The class of a method or baseline: `FedEASE`, `EASE`."""
    if name not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return estimator(NAMES[name])
