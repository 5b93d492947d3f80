"""Progress of training and of matrices: live on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from solera.cli.output import err

if TYPE_CHECKING:
    from solera.baselines import Epoch
    from solera.runs.training import Callback, Training
    from solera.study.matrix import Matrix
    from solera.study.runner import Plan, Running, Status

_SECONDS = 5.0  # between lines where there is no terminal
_MATRIX_SECONDS = 30.0  # between lines about the runs of a matrix


@contextmanager
def step_progress(title: str, rounds: int) -> Iterator[Callable[[int, str], None]]:
    """Return a callback that takes the number of finished rounds and a message."""
    with open_progress(title, "round") as update:
        yield lambda done, figures: update(done, rounds, figures)


@contextmanager
def training_progress(
    title: str, rounds: int, on_start: Callable[[Training], None] | None = None
) -> Iterator[Callback]:
    """Return a callback that shows the progress of a run. `on_start` may say more before it starts."""
    from solera.runs.result import Progress as Done
    from solera.runs.training import Callback

    with step_progress(title, rounds) as show:

        class Shown(Callback):
            def on_start(self, training: Training) -> None:
                if on_start:
                    on_start(training)

            def after_round(self, done: Done) -> None:
                show(done.rounds_done, done.figures)

            def on_clients(self, done: int, clients: int) -> None:
                show(0, f"client {done:,} of {clients:,}")

            def on_users(self, done: int, users: int) -> None:
                show(rounds, f"test: user {done:,} of {users:,}")

        yield Shown()


@contextmanager
def stage_progress(title: str) -> Iterator[Callable[[str], None]]:
    """Return a callback that takes the name of a finished stage, if the total is unknown."""
    if not err.is_terminal:
        yield _NowAndThen(title).say
        return
    with err.status(escape(title)) as status:
        yield lambda done: status.update(escape(f"{title} · {done}"))


@contextmanager
def epoch_progress(title: str) -> Iterator[Callable[[Epoch], None]]:
    """Return a callback for every finished epoch. Closed-form baselines never call it."""
    with open_progress(title, "epoch") as update:
        yield lambda done: update(done.done, done.epochs, _loss(done))


@contextmanager
def open_progress(title: str, step: str) -> Iterator[Callable[[int, int, str], None]]:
    """Return a callback that takes the number of finished steps, their total, and a message."""
    if not err.is_terminal:
        yield _Lines(title, step)
        return
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[figures]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task(title, total=None, figures="")

        def update(done: int, total: int, figures: str) -> None:
            shown = " · ".join(filter(None, (f"{step} {done}/{total}", figures)))
            bar.update(task, completed=done, total=total, figures=shown)

        yield update


class _NowAndThen:
    """Print occasional progress lines if there is no terminal."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._last = time.monotonic()

    def say(self, *parts: str, due: bool = False) -> None:
        """Print a line if it is `due`, or if the last one was long ago."""
        now = time.monotonic()
        if due or now - self._last >= _SECONDS:
            self._last = now
            err.print(" · ".join(filter(None, (self._title, *parts))), highlight=False, markup=False)


class _Lines(_NowAndThen):
    def __init__(self, title: str, step: str) -> None:
        super().__init__(title)
        self._step, self._done = step, 0

    def __call__(self, done: int, total: int, figures: str) -> None:
        reached, self._done = done == total != self._done, done
        self.say(f"{self._step} {done}/{total}", figures, due=reached)


def _loss(done: Epoch) -> str:
    return "" if done.loss is None else f"loss {done.loss:.4f}"


def run_shown(
    matrix: Matrix,
    plan: Plan,
    what: str,
    *,
    jobs: int | None,
    data_dir: Path | None,
    more: Callable[[Status], str] = lambda _: "",
) -> Status:
    """Run what is missing of a matrix and show the progress. `more` is said beside it.

    Raises an error that says how to continue, if it was interrupted.
    """
    from solera.runs import StoppedError
    from solera.study.runner import run_matrix

    def summary(status: Status) -> str:
        return " · ".join(filter(None, (_summary(status, what), more(status))))

    lines = _MatrixLines(summary)
    with Live(console=err, transient=True, auto_refresh=False) if err.is_terminal else nullcontext() as live:

        def update(status: Status) -> None:
            lines.finished(status)
            if live:
                live.update(Text("\n".join(lines.now(status))), refresh=True)
            else:
                lines.now_and_then(status)

        status = run_matrix(matrix, plan, jobs=jobs, data_dir=data_dir, on_change=update)
    if status.stopping and status.done < status.total:
        raise StoppedError(
            f"stopped with {status.done} of {status.total} {what} in {matrix.results}",
            "run the same command again to continue",
        )
    return status


class _MatrixLines:
    """A line for every finished run, and lines about those that run."""

    def __init__(self, summary: Callable[[Status], str]) -> None:
        self._summary = summary
        self._told = 0
        self._last = time.monotonic()
        self._said_stopping = False

    def finished(self, status: Status) -> None:
        for each in status.finished[self._told :]:
            how = "done" if each.succeeded else "failed"
            _say(f"{how}: {each.entry} · {each.outcome.text} · {each.seconds:.0f} s")
        self._told = len(status.finished)

    def now(self, status: Status) -> list[str]:
        return [self._summary(status), *(f"  {run.entry} · {_step(run)}" for run in status.running)]

    def now_and_then(self, status: Status) -> None:
        now = time.monotonic()
        if status.stopping and not self._said_stopping:
            self._said_stopping = True
            _say(self._summary(status))
        if now - self._last >= _MATRIX_SECONDS:
            self._last = now
            for line in self.now(status):
                _say(line)


def _say(line: str) -> None:
    err.print(line, highlight=False, soft_wrap=True, markup=False)


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
