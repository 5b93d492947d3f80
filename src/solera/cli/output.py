"""Output of commands: tables and messages for people, one JSON document for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from solera.core.text import clean_text

if TYPE_CHECKING:
    from solera.runs import RunResult

out = Console()  # results
err = Console(stderr=True)  # progress, warnings, errors

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]


def help_if_alone(context: typer.Context) -> None:
    """Show the help of a command group that is called without a command."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit


def say(text: str) -> None:
    """Print one line, as it is."""
    out.print(text, highlight=False, soft_wrap=True)


def print_json(content: Any) -> None:
    """Print one JSON document to standard output."""
    sys.stdout.write(json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def table(title: str, columns: Iterable[str], rows: Iterable[Iterable[Any]], *, leaky: bool = False) -> None:
    """Print a table. Leaky results are marked in words above and below it, not only by colour."""
    caption = None
    if leaky:
        from solera.runs.result import LEAKY

        caption = LEAKY
    made = Table(
        title=f"{title} · LEAKY" if leaky else title,
        title_justify="left",
        title_style="bold red" if leaky else "bold",
        caption=caption,
        caption_justify="left",
        caption_style="red",
        box=box.SIMPLE_HEAD,
    )
    values = [list(row) for row in rows]
    names = list(columns)
    texts = [any(isinstance(row[number], str) for row in values) for number in range(len(names))]
    for number, (column, is_text) in enumerate(zip(names, texts, strict=True)):
        justify: Literal["left", "right"] = "left" if is_text else "right"
        whole = number == 0 and sum(texts) > 1  # names stay on one line if something else can be broken
        made.add_column(column, justify=justify, overflow="fold", no_wrap=whole or not is_text)
    for row in values:
        made.add_row(*(escape(show(value)) for value in row))  # "[rec]" is a film, not markup
    out.print(made)


def show(value: Any) -> str:
    """Format a value for people."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4f}"
    return clean_text(str(value))


def print_result(result: RunResult) -> None:
    """Print the metrics of a run or a baseline."""
    table(result.title, ("", *result.shown), result.rows, leaky=result.leaky)
    for remark in result.remarks:
        out.print(remark, highlight=False)
    if result.privacy:
        out.print(privacy_line(result.privacy), highlight=False)
    if result.bytes:
        up, down = result.bytes.up / 1024, result.bytes.down / 1024
        dp = (result.privacy or {}).get("epsilon") is not None
        chosen = "counts: under --dp, always the last" if dp else "was chosen on validation"
        out.print(
            f"round {result.selected_round} of {result.rounds} {chosen}; "
            f"{result.seconds_per_round:.2f} s a round; "
            f"per client and round {up:,.1f} KiB up, {down:,.1f} KiB down",
            highlight=False,
        )


def duration(seconds: float) -> str:
    """A time as people say it: 12 s, 8 min, 3.4 h."""
    if seconds < 100:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def privacy_line(stated: dict[str, Any]) -> str:
    """Summary of a run's privacy statement in one line."""
    if stated["epsilon"] is None:
        return (
            f"privacy: {stated['guarantee'].upper()} ({stated['why']}); with uploads clipped to 1 in L1 "
            f"it would be ε = {stated['epsilon_with_the_clip_it_lacks']:,.0f}"
        )
    return (
        f"privacy: ε = {stated['epsilon']:.3g}, δ = {stated['delta']:g} per {stated['unit']} "
        f"({stated['neighbouring']}), {stated['mode']}; sampling: {stated['sampling']}; "
        f"clip {stated['clip']:g}, noise {stated['noise_multiplier']:.3g} clips, {stated['accountant']}; "
        f"noise is {stated['randomness']}"
    )
