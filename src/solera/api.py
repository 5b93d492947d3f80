"""The Python interface: load a data set, train a method on it, look at the run."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal

from solera.data.datasets import load
from solera.data.interactions import Interactions
from solera.methods import find
from solera.privacy.dp.laplace import PaperLaplace
from solera.privacy.dp.settings import DP
from solera.runs import Progress, Run, RunConfig
from solera.runs import train as _train
from solera.runs.config import usual_rounds
from solera.runs.notebook import in_notebook, notebook_progress

__all__ = ["Interactions", "Progress", "Run", "load", "train"]


def train(
    method: str,
    data: Interactions | str,
    *,
    plugins: Collection[str] = (),
    protocol: str = "strict",
    rounds: int | None = None,
    patience: int | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    resume: bool = False,
    engine: Literal["block", "reference"] = "block",
    threads: int = 0,
    device: str = "cpu",
    precision: Literal["single", "double"] = "single",
    dp: str | None = None,
    wire: str | None = None,
    record: bool = False,
    on_round: Callable[[Progress], None] | None = None,
    progress: bool = True,
    **options: Any,
) -> Run:
    """Train a method and return the finished run.

    `data` is what `solera.load` gave, or a name for it; `dp` and `wire` are as on the command line. Further
    keyword arguments are the method's own options, and those of its `plugins`. Nothing is written to disk
    unless `out` names a folder; with `record`, that keeps what some figures of a report need besides. A
    notebook shows progress below the cell, unless `progress` is False.

    Examples:
        >>> run = solera.train("fedmf", "ml-100k", rounds=20, learning_rate=0.02)  # doctest: +SKIP
        >>> run.test["full"]["ndcg@10"]  # doctest: +SKIP
    """
    interactions = load(data) if isinstance(data, str) else data
    config = RunConfig(
        method=method,
        dataset=interactions.name if isinstance(data, Interactions) else data,
        plugins=tuple(plugins),
        options=options,
        protocol=protocol,
        rounds=rounds or usual_rounds(find(method, options, plugins)),
        patience=patience,
        seed=seed,
        engine=engine,
        precision=precision,
        dp=DP.parse(dp) if dp else None,
        wire=PaperLaplace.parse(wire) if wire else None,
    )
    title = f"{config.full_method} on {interactions.name}"
    with notebook_progress(title) if progress and in_notebook() else nullcontext() as show:

        def after_round(done: Progress) -> None:
            for each in (show, on_round):
                if each is not None:
                    each(done)

        return _train(
            config,
            interactions,
            out=None if out is None else Path(out),
            resume=resume,
            threads=threads,
            device=device,
            record=record,
            on_round=after_round,
        )
