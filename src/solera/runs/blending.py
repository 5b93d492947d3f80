"""Blend finished runs or fitted baselines into one model, for the command line and the Python interface."""

from __future__ import annotations

from pathlib import Path

from solera.core.errors import RunError
from solera.runs.baseline import BaselineRun
from solera.runs.blend import Blended, blend, write_blend
from solera.runs.run import Run

Part = Run | BaselineRun | str | Path


def blend_runs(
    first: Part, second: Part, *, out: str | Path | None = None, data_dir: str | Path | None = None
) -> Run:
    """Blend two models that score users by their histories. The weight is the best one on validation.

    Each is a run, the folder of one, or a fitted baseline. With `out`, the blend of two runs is written to a
    folder, from which it recommends like a run.

    Examples:
        >>> solera.blend("runs/fedslist-beauty", "runs/fedsasrec-beauty").metrics  # doctest: +SKIP
    """
    where = None if data_dir is None else Path(data_dir)
    one, other = (
        Run.open(each, data_dir=where) if isinstance(each, (str, Path)) else each for each in (first, second)
    )
    path = None if out is None else Path(out)
    folders = (folder_of(one), folder_of(other)) if path else None
    settings, result = blend(one, other)
    if path and folders:
        write_blend(path, folders, settings, result)
    return Run(result, one.parts.data, Blended(one, other, settings.weight), path, ())


def folder_of(run: Part) -> Path:
    """The folder of a run."""
    if isinstance(run, (str, Path)):
        return Path(run)
    if isinstance(run, BaselineRun) or run.path is None:
        raise RunError(f"{run!r} was not written to a folder", "train it with out=FOLDER")
    return run.path
