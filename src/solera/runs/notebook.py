"""What a notebook shows: progress while a run trains, and its figures when it is done."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape

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

    handle = display(HTML(f"<p>{escape(title)} …</p>"), display_id=True)

    def update(done: Progress) -> None:
        handle.update(HTML(progress_html(title, done)))

    yield update
    handle.update(HTML(""))


def progress_html(title: str, done: Progress) -> str:
    """Rounds done, loss and the figure on validation items."""
    return (
        f'<p>{escape(title)} <progress value="{done.rounds_done}" max="{done.rounds}"></progress> '
        f"round {done.rounds_done}/{done.rounds} · {done.figures}</p>"
    )


def result_html(result: RunResult) -> str:
    """The table that the command line prints; a leaky one says so in red."""
    head = "".join(f"<th>{escape(metric)}</th>" for metric in METRICS)
    body = "".join(
        f"<tr><th>{escape(str(name))}</th>{''.join(f'<td>{value:.4f}</td>' for value in values)}</tr>"
        for name, *values in result.rows
    )
    warning = f'<p style="color: #c00"><b>{escape(LEAKY)}</b></p>' if result.leaky else ""
    return f"<b>{escape(result.title)}</b>{warning}<table><tr><th></th>{head}</tr>{body}</table>"
