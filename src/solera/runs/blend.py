"""Blend two models: add up their scores, standardised user by user, with a weight chosen on validation.

    score = (1 − w) · (a − mean a) / std a + w · (b − mean b) / std b       mean and std over a user's items

A model that was solved in one round and one that was trained in many err differently, so the blend is better
than either. w is the best on the validation items, of 0, 0.05, …, 1 and finer steps at both ends. Test items
are ranked with that w alone.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from torch import Tensor

from solera.core.errors import ConfigError, RunError
from solera.core.files import creating_folder
from solera.core.types import Ints
from solera.data.interactions import history
from solera.evaluate import Evaluator, Score, get
from solera.runs.baseline import BaselineRun, run_baseline
from solera.runs.histories import Tests
from solera.runs.presets import preset
from solera.runs.recommending import Blended, mixed
from solera.runs.result import Rankings, RunResult, TestName, reads_histories
from solera.runs.run import BLEND, FIRST, SECOND, BlendSettings, Run
from solera.runs.settings import VALIDATED, RunConfig

_FINE = (0.01, 0.02, 0.03)  # a closed form has few high scores, so little of its weight is often enough
WEIGHTS = tuple(sorted({n / 20 for n in range(21)} | {*_FINE} | {round(1 - w, 2) for w in _FINE}))


def blend(first: Run | BaselineRun, second: Run | BaselineRun) -> tuple[BlendSettings, RunResult]:
    """Choose the weight on validation, and rank the test items with it."""
    _check(first, second)
    parts, seed = first.parts, first.result.seed
    evaluator = Evaluator(parts, seed, first.result.cutoffs, validated=VALIDATED)
    known = history(parts, "validation")
    scores = first.serve(known), second.serve(known)

    def with_all_weights(users: Ints) -> Iterator[Tensor]:
        one, other = (score(users) for score in scores)
        for weight in WEIGHTS:
            yield mixed(one, other, weight)

    tried = dict(zip(WEIGHTS, evaluator.validations(with_all_weights), strict=True))
    figures = {weight: each.selected(get(parts.protocol)) for weight, each in tried.items()}
    best = max(figures, key=lambda weight: figures[weight])
    both = Blended(first, second, best)
    serve: dict[TestName, Callable[[], Score]] = {
        "test": lambda: both.serve(history(parts, "test")),
        "test_train": lambda: both.serve(parts.train),
    }
    result = RunResult.of(
        f"{first.result.method} & {second.result.method}",
        parts,
        seed,
        tests=Tests(serve).evaluated(parts, evaluator.test, both=True),
        validation=Rankings.of(tried[best]),
        options={"weight": best},
    )
    return BlendSettings(weight=best, validation=figures), result


def _check(first: Run | BaselineRun, second: Run | BaselineRun) -> None:
    """Refuse models that were not trained on the same items, or do not score by histories alone."""
    for name in ("dataset", "protocol", "users", "items"):
        one, other = getattr(first.result, name), getattr(second.result, name)
        if one != other:
            raise ConfigError(
                f"the models have different {name}: {one} and {other}", "blend runs of the same data set"
            )
    for each in (first, second):
        if not reads_histories(each.result.method):
            raise ConfigError(
                f"{each.result.method!r} does not score users by their histories alone",
                "blend methods such as fedslist and fedsasrec, or baselines such as slist and sasrec",
            )


def write_blend(path: Path, runs: tuple[Path, Path], settings: BlendSettings, result: RunResult) -> None:
    """Write the folder of a blend: copies of both runs, the weight, and the result."""
    if path.exists():
        raise RunError(f"{path} already exists", "give another --out")
    path.parent.mkdir(parents=True, exist_ok=True)
    with creating_folder(path) as partial:
        for name, run in zip((FIRST, SECOND), runs, strict=True):
            shutil.copytree(run, partial / name, ignore=shutil.ignore_patterns("checkpoint-*"))
        for name, content in ((BLEND, settings.model_dump()), ("result.json", result.document())):
            (partial / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


Part = Run | BaselineRun | str | Path


def blend_runs(
    first: Part, second: Part, *, out: str | Path | None = None, data_dir: str | Path | None = None
) -> Run:
    """Blend two models that score users by their histories. The weight is the best one on validation.

    Each is a run, the folder of one, a fitted baseline, or the preset of a baseline, which is fitted first.
    With `out`, the blend of two runs is written to a folder, from which it recommends like a run.

    Examples:
        >>> solera.blend("runs/fedslist-beauty", "runs/fedsasrec-beauty").metrics  # doctest: +SKIP
    """
    where = None if data_dir is None else Path(data_dir)
    path = None if out is None else Path(out)
    folders = (folder_of(first), folder_of(second)) if path else None
    one, other = (_opened(each, where) for each in (first, second))
    settings, result = blend(one, other)
    if path and folders:
        write_blend(path, folders, settings, result)
    return Run(result, one.parts.data, Blended(one, other, settings.weight), path, ())


def folder_of(run: Part) -> Path:
    """The folder of a run."""
    if isinstance(run, (str, Path)) and not _is_preset(run):
        return Path(run)
    if not isinstance(run, Run) or run.path is None:
        raise RunError(f"{run!r} was not written to a folder", "train it with out=FOLDER")
    return run.path


def _is_preset(part: str | Path) -> bool:
    return not Path(part).is_dir() and (":" in str(part) or str(part).endswith(".toml"))


def _opened(part: Part, data_dir: Path | None) -> Run | BaselineRun:
    """The model of a part, read from its folder or fitted if it is not there yet."""
    if not isinstance(part, (str, Path)):
        return part
    if not _is_preset(part):
        return Run.open(part, data_dir=data_dir)
    config = preset(str(part)).config()
    if isinstance(config, RunConfig):
        raise ConfigError(
            f"preset {str(part)!r} is for a method, not a baseline",
            f"run `solera train --preset {part} --out FOLDER` and blend the folder",
        )
    data = config.load_data(data_dir)
    return run_baseline(
        config.baseline, data, protocol=config.protocol, seed=config.seed, options=config.options
    )
