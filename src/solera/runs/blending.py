"""Blend finished runs or fitted baselines into one model, for the command line and the Python interface."""

from __future__ import annotations

from pathlib import Path

from solera.core.errors import ConfigError, RunError
from solera.data.datasets import load
from solera.runs.baseline import BaselineRun, run_baseline
from solera.runs.blend import Blended, blend, write_blend
from solera.runs.presets import preset
from solera.runs.run import Run
from solera.runs.settings import RunConfig

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
    data = load(
        config.dataset,
        data_dir=data_dir,
        columns=config.columns,
        min_interactions=config.min_interactions,
    )
    return run_baseline(
        config.baseline, data, protocol=config.protocol, seed=config.seed, options=config.options
    )
