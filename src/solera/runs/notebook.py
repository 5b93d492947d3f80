"""Notebook output: progress during training, and metrics at the end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from solera.core.text import render
from solera.runs.result import LEAKY, Progress, RunResult


def in_notebook() -> bool:
    """Whether output appears below a notebook cell. Does not import IPython."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return type(shell).__name__ == "ZMQInteractiveShell"


@contextmanager
def notebook_progress(title: str) -> Iterator[Callable[[Progress], None]]:
    """A function to call after every round. It shows a progress bar, which disappears at the end."""
    from IPython.display import HTML, display  # noqa: PLC0415 - only notebooks have it

    handle = display(HTML(progress_html(title)), display_id=True)

    def update(done: Progress) -> None:
        handle.update(HTML(progress_html(title, done)))

    yield update
    handle.update(HTML(""))


def progress_html(title: str, done: Progress | None = None) -> str:
    """Finished rounds, loss and the validation metric; before the first round, only the title."""
    return render("solera.runs", "progress.html", title=title, done=done)


def result_html(result: RunResult) -> str:
    """The table that the command line prints. A leaky protocol is marked in red."""
    return render(
        "solera.runs",
        "result.html",
        title=result.title,
        warning=LEAKY if result.leaky else "",
        metrics=result.shown,
        rows=result.rows,
    )
