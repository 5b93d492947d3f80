"""Progress of a training run: a live bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from solera.cli.output import err

if TYPE_CHECKING:
    from solera.runs import Progress as Round

_SECONDS = 5.0  # between lines where there is no terminal


@contextmanager
def round_progress(title: str, rounds: int) -> Iterator[Callable[[Round], None]]:
    """A function to call after every round."""
    if not err.is_terminal:
        yield _Lines(title)
        return
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        TextColumn("round {task.completed}/{task.total} · {task.fields[figures]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task(title, total=rounds, figures="")

        def update(done: Round) -> None:
            bar.update(task, completed=done.rounds_done, figures=_figures(done))

        yield update


class _Lines:
    def __init__(self, title: str) -> None:
        self._title = title
        self._last = time.monotonic()

    def __call__(self, done: Round) -> None:
        now = time.monotonic()
        if now - self._last >= _SECONDS or done.rounds_done == done.rounds:
            self._last = now
            err.print(
                f"{self._title} · round {done.rounds_done}/{done.rounds} · {_figures(done)}", highlight=False
            )


def _figures(done: Round) -> str:
    validation = done.entry["validation"]["full"]["ndcg@10"]
    return f"loss {done.entry['loss']:.4f} · validation NDCG@10 {validation:.4f}"
