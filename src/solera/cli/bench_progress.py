"""Progress of a benchmark: a live table on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from solera.cli.output import err

if TYPE_CHECKING:
    from solera.study.runner import Finished, Running, Status

_SECONDS = 30.0  # between lines about what runs, where there is no terminal


@contextmanager
def matrix_progress(
    what: str = "records", more: Callable[[Status], str] = lambda _: ""
) -> Iterator[Callable[[Status], None]]:
    """Return a callback that updates the progress display. `more` is shown next to the progress."""

    def summary(status: Status) -> str:
        return " · ".join(filter(None, (_summary(status, what), more(status))))

    lines = _Lines(summary)
    if not err.is_terminal:
        yield lines
        return
    with Live(console=err, transient=True, auto_refresh=False) as live:

        def update(status: Status) -> None:
            lines.finished(status)
            live.update(_live(status, summary(status)), refresh=True)

        yield update


def raise_if_stopped(status: Status, what: str) -> None:
    """Raise an error that says how to continue, if the matrix was interrupted."""
    from solera.runs import StoppedError

    if status.stopping and status.done < status.total:
        raise StoppedError(
            f"stopped with {status.done} of {status.total} {what}", "run the same command again to continue"
        )


class _Lines:
    """Print a line for every finished run, and from time to time one about the active runs."""

    def __init__(self, summary: Callable[[Status], str]) -> None:
        self._summary = summary
        self._told = 0
        self._last = time.monotonic()
        self._said_stopping = False

    def __call__(self, status: Status) -> None:
        self.finished(status)
        now = time.monotonic()
        if status.stopping and not self._said_stopping:
            self._said_stopping = True
            err.print(self._summary(status), highlight=False, soft_wrap=True)
        if now - self._last >= _SECONDS:
            self._last = now
            for line in (self._summary(status), *(f"  {run.entry} · {_step(run)}" for run in status.running)):
                err.print(line, highlight=False, soft_wrap=True)

    def finished(self, status: Status) -> None:
        for each in status.finished[self._told :]:
            err.print(_ended(each), highlight=False, soft_wrap=True, markup=False)
        self._told = len(status.finished)


def _ended(each: Finished) -> str:
    how = "done" if each.succeeded else "failed"
    return f"{how}: {each.entry} · {each.outcome.text} · {each.seconds:.0f} s"


def _live(status: Status, summary: str) -> Group:
    table = Table(box=None, pad_edge=False)
    for column in ("method", "data set", "protocol", "seed", "round", "validation NDCG@10"):
        table.add_column(column, justify="left" if column in ("method", "data set", "protocol") else "right")
    for run in status.running:
        entry, step = run.entry, run.step
        rounds = f"{step.done}/{step.total}" if step else "…"
        figure = f"{step.validation:.4f}" if step and step.validation is not None else ""
        table.add_row(
            entry.title, entry.asked.dataset, entry.config.protocol, str(entry.config.seed), rounds, figure
        )
    return Group(table, Text(summary, style="bold"))


def _summary(status: Status, what: str) -> str:
    eta = status.eta(time.monotonic())
    parts = [f"{status.done}/{status.total} {what}"]
    if status.failed:
        parts.append(f"{len(status.failed)} failed")
    if status.stopping:
        parts.append("stopping after these rounds; press Ctrl-C again to stop at once")
    elif eta is not None:
        parts.append(f"about {timedelta(seconds=round(eta))} left")
    return " · ".join(parts)


def _step(run: Running) -> str:
    if run.step is None:
        return "beginning"
    figure = "" if run.step.validation is None else f" · validation NDCG@10 {run.step.validation:.4f}"
    return f"{run.step.done}/{run.step.total}{figure}"
