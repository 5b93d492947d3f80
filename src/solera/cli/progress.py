"""Progress of training: a live bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from solera.cli.output import err

if TYPE_CHECKING:
    from solera.baselines import Epoch
    from solera.runs.training import Callback, Training

_SECONDS = 5.0  # between lines where there is no terminal


@contextmanager
def step_progress(title: str, rounds: int) -> Iterator[Callable[[int, str], None]]:
    """Return a callback that takes the number of finished rounds and a message."""
    if not err.is_terminal:
        lines = _Lines(title, "round")
        yield lambda done, figures: lines(done, rounds, figures)
        return
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        TextColumn("round {task.completed}/{task.total} · {task.fields[figures]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task(title, total=rounds, figures="")
        yield lambda done, figures: bar.update(task, completed=done, figures=figures)


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
