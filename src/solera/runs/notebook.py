"""What a notebook shows: progress while a run trains, and its figures when it is done."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from solera.core.templates import render
from solera.runs.progress import Progress
from solera.runs.result import LEAKY, METRICS, RunResult


def in_notebook() -> bool:
    """Whether what is displayed appears below a cell; without importing what is not there."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return type(shell).__name__ == "ZMQInteractiveShell"


@contextmanager
def notebook_progress(title: str) -> Iterator[Callable[[Progress], None]]:
    """A function to call after every round: a bar below the cell, which goes when the run is done."""
    from IPython.display import HTML, display  # noqa: PLC0415 - only notebooks have it

    handle = display(HTML(progress_html(title)), display_id=True)

    def update(done: Progress) -> None:
        handle.update(HTML(progress_html(title, done)))

    yield update
    handle.update(HTML(""))


def progress_html(title: str, done: Progress | None = None) -> str:
    """Rounds done, loss and the figure on validation items; before the first round, the title alone."""
    return render("solera.runs", "progress.html", title=title, done=done)


def result_html(result: RunResult) -> str:
    """The table that the command line prints; a leaky one says so in red."""
    return render(
        "solera.runs",
        "result.html",
        title=result.title,
        warning=LEAKY if result.leaky else "",
        metrics=METRICS,
        rows=result.rows,
    )
