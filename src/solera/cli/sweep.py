"""solera sweep: one method with many settings, the best of them by validation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from solera.cli.catalogue import method_names
from solera.cli.options import Data, DataDir, Options, Plugins, parse_pairs, takes_settings
from solera.cli.output import Answer, Line, Table, answers
from solera.cli.progress import run_shown

if TYPE_CHECKING:
    from solera.runs import RunConfig
    from solera.study.runner import Status
    from solera.study.sweep import Sweep
    from solera.study.trials import Study

SHOWN = 10  # trials in the table

Workers = Annotated[
    int | None, typer.Option(help="Trials in parallel, one process each (default: one per core).", min=1)
]


@answers
@takes_settings("rounds", "patience", "protocol", "seed", "dp", "noise", "min_interactions", "columns")
def sweep(
    method: Annotated[
        str,
        typer.Argument(help="A method; `solera methods` lists them.", autocompletion=method_names),
    ],
    data: Data,
    axis: Annotated[
        list[str] | None,
        typer.Option(
            "-s",
            "--sweep",
            help="What to vary: learning_rate=0.01,0.1 or learning_rate=1e-4..1; repeatable. An option, "
            "rounds, noise (scale of laplace), dp.noise, dp.epsilon or dp.clip.",
        ),
    ] = None,
    trials: Annotated[
        int | None, typer.Option(help="Number of trials, if a range is searched (default 20).", min=1)
    ] = None,
    plugin: Plugins = None,
    option: Options = None,
    *,
    settings: dict[str, Any],
    test: Annotated[
        bool,
        typer.Option("--test", help="Also score test items, for figures only; they select nothing."),
    ] = False,
    out_dir: Annotated[
        Path | None,
        typer.Option("--out", help="Folder of the sweep (default: a new one under sweeps/)."),
    ] = None,
    workers: Workers = None,
    figures: Annotated[
        bool, typer.Option("--figures", help="Also write every figure as SVG, PNG and CSV next to the page.")
    ] = False,
    data_dir: DataDir = None,
) -> Answer:
    """Try many settings of a method and select the best on validation items.

    Lists of values are tried in all combinations; with a range, Optuna (extra `tune`) looks for the best.
    After any interruption the same command goes on with the trials it has.

    Example: solera sweep fedmf --data ml-100k -s learning_rate=0.01,0.1 -s embedding_size=16,32

    Example: solera sweep fedmf --data ml-100k -s learning_rate=1e-4..1 --trials 30
    """
    from solera.core.errors import ConfigError
    from solera.runs.environment import package_version
    from solera.runs.presets import run_settings
    from solera.runs.settings import usual_rounds
    from solera.study.search_space import is_grid, read_space
    from solera.study.sweep import Sweep, check_size

    options = parse_pairs(option or [], "-o local_epochs=2")
    config = run_settings(method, data, plugins=plugin or [], options=options, resolve=False, **settings)
    if "rounds" not in settings:
        config = config.model_copy(update={"rounds": min(20, usual_rounds(config.built))})
    axes = parse_pairs(axis or [], "-s learning_rate=0.01,0.1")
    both = sorted(axes.keys() & options.keys())
    if both:
        raise ConfigError(f"{both[0]} is given both with -s and with -o", "give it with one of them only")
    space = read_space(axes, config)
    size = check_size(space, trials)
    if not is_grid(space) and package_version("optuna") is None:
        raise ConfigError("ranges need Optuna", "pip install 'solera[tune]', or give values: 0.01,0.1,1")
    asked = Sweep(config, space, size, out_dir or _default_folder(config, axes), test)
    return _run(asked, workers=workers, data_dir=data_dir, figures=figures)


def _default_folder(config: RunConfig, axes: dict[str, str]) -> Path:
    """Default folder. The same command gets the same folder, so that it continues."""
    from solera.study.records import slug

    name = "-".join([config.full_method, Path(config.dataset).stem, *axes])
    rest = "" if config.protocol == "strict" else f"-{config.protocol}"
    return Path("sweeps") / slug(f"{name}{rest}")


def _run(asked: Sweep, *, workers: int | None, data_dir: Path | None, figures: bool) -> Answer:
    """Run the missing trials, then write the preset and the page."""
    from solera.report.page import write_page
    from solera.report.sweep import sweep_figures, sweep_page
    from solera.study.runner import make_plan
    from solera.study.sweep import shown
    from solera.study.trials import best

    asked.begin()
    study = asked.study()
    plan = make_plan(asked.matrix, retry_failed=True)
    told = len(plan.recorded)

    def so_far(status: Status) -> str:
        nonlocal study, told
        if status.done > told:
            study, told = asked.study(), status.done
        found = best(study.trials)
        return f"best so far: {shown(found.options)} · validation NDCG@10 {found.ndcg:.4f}" if found else ""

    status = run_shown(asked.matrix, plan, "trials", jobs=workers, data_dir=data_dir, more=so_far)
    study = asked.study()
    made = sweep_figures(study)
    page = write_page(asked.folder / "sweep.html", sweep_page(study, made), made if figures else {})
    written = [asked.write_best(study), *page]
    failed = [error for _, error in status.failed]
    return Answer(
        {
            "out": str(asked.folder),
            "best": _trial(study, study.best),
            "trials": [_trial(study, trial) for trial in study.trials],
            "written": list(map(str, written)),
            "failed": failed,
        },
        [
            _table(study, asked),
            *(Line(f"failed: {error}", "red") for error in failed),
            Line(f"sweep: {asked.folder} (page: {asked.folder / 'sweep.html'})"),
            Line(f"next: solera train --preset {asked.folder / 'best.toml'}", "dim"),
        ],
        failed=bool(failed),
    )


def _trial(study: Study, trial: Any) -> dict[str, Any]:
    fields: dict[str, Any] = trial.model_dump(mode="json", exclude={"curve"})
    return {"trial": study.trials.index(trial), **fields}


def _table(study: Study, asked: Sweep) -> Table:
    from solera.evaluate import get

    ordered = sorted(study.trials, key=lambda trial: -(trial.ndcg or -1.0))[:SHOWN]
    ended = ("end",) if any(trial.end != "finished" for trial in ordered) else ()
    rows = [
        (
            *(trial.options.get(option, "as given") for option in study.space),
            trial.ndcg,
            trial.hr,
            trial.ndcg99,
            trial.hr99,
            *(
                (figures or {}).get(name)
                for figures in ((trial.test, trial.test99) if study.best.tested else ())
                for name in ("ndcg@10", "hr@10")
            ),
            f"{trial.seconds:.0f}",
            *((trial.end,) if ended else ()),
        )
        for trial in ordered
    ]
    name = study.best.tested
    tested = [f"{name} {each}" for each in ("NDCG@10", "HR@10", "NDCG@10 of 99", "HR@10 of 99") if name]
    return Table(
        f"{study.label} on {study.dataset}: the best of {len(study.trials)} trials, by validation items",
        (*study.space, "NDCG@10", "HR@10", "NDCG@10 of 99", "HR@10 of 99", *tested, "s", *ended),
        rows,
        get(study.protocol).leaky,
    )
