"""Output of commands: one JSON document for programs, tables and lines for people, from the same data."""

from __future__ import annotations

import functools
import inspect
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar

import typer
from rich import box
from rich import table as rich_table
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from solera.core.text import clean_text

if TYPE_CHECKING:
    from solera.runs import RunResult

T = TypeVar("T")
out = Console()  # results
err = Console(stderr=True)  # progress, warnings, errors

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
_LEAST, _LEAST_NAME = 8, 24  # widths to which a column of text and the first column may shrink


class Line(NamedTuple):
    """A line that is never broken, such as a path or a command."""

    text: str
    style: str = ""

    def print(self) -> None:
        """Print the line, in its style."""
        out.print(Text(clean_text(self.text), style=self.style), soft_wrap=True)


class Table(NamedTuple):
    """A table. Leaky results are marked in words above and below it, not only by colour."""

    title: str
    columns: Iterable[str]
    rows: Iterable[Iterable[Any]]
    leaky: bool = False

    @classmethod
    def of(cls, title: str, records: Iterable[Mapping[str, Any]], columns: Mapping[str, str]) -> Table:
        """A table of records: what each has under these keys, with their headers."""
        return cls(title, columns.values(), ([each[key] for key in columns] for each in records))

    def print(self) -> None:
        """Print the table. One that is too wide comes in parts, each with the first column."""
        values, names = [list(row) for row in self.rows], list(self.columns)
        cells = [[show(value) for value in row] for row in values]
        texts = [any(isinstance(row[number], str) for row in values) for number in range(len(names))]
        # Names stay on one line if something else can be broken.
        whole = [not text or (number == 0 and sum(texts) > 1) for number, text in enumerate(texts)]
        widths = [max(map(cell_len, (name, *(row[n] for row in cells)))) for n, name in enumerate(names)]
        least = [wide if kept else min(wide, _LEAST) for wide, kept in zip(widths, whole, strict=True)]
        least[0] = max(least[0], min(widths[0], _LEAST_NAME))
        title = f"{self.title} · LEAKY" if self.leaky else self.title
        out.print(Text(title, style="bold red" if self.leaky else "bold"))
        for part in _side_by_side(least, out.width):
            made = rich_table.Table(box=box.SIMPLE_HEAD)
            for number in part:
                justify: Literal["left", "right"] = "left" if texts[number] else "right"
                made.add_column(names[number], justify=justify, overflow="fold", no_wrap=whole[number])
            for row in cells:
                made.add_row(*(Text(row[number]) for number in part))
            out.print(made)
        if self.leaky:
            from solera.runs.result import LEAKY

            out.print(LEAKY, style="red", highlight=False)


def _side_by_side(widths: list[int], room: int) -> list[list[int]]:
    """The columns of each part of a table, of which the first column begins every one."""
    parts = [[0]]
    for number in range(1, len(widths)):
        taken = 1 + sum(widths[each] + 3 for each in (*parts[-1], number))  # with padding and dividers
        if taken > room and len(parts[-1]) > 1:
            parts.append([0])
        parts[-1].append(number)
    return parts


class Answer(NamedTuple):
    """What a command returns: a document for programs, and the same as tables and lines for people."""

    document: Any
    shown: Iterable[Table | Line | str]
    failed: int = 0  # the exit code; True is 1

    def print(self, *, json: bool) -> None:
        """Print it in one of its two forms."""
        if json:
            print_json(self.document)
        else:
            for each in self.shown:
                _print_prose(each) if isinstance(each, str) else each.print()


def answers(command: Callable[..., Answer | None]) -> Callable[..., None]:
    """Give a command the option --json, and print the answer that it returns.

    A command that asks questions, or answers more than once, has a parameter `json` itself.
    """
    parameters = inspect.signature(command, eval_str=True).parameters
    added = inspect.Parameter("json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Json)

    @functools.wraps(command)
    def answered(*, json: bool = False, **given: Any) -> None:
        answer = command(**given, json=json) if "json" in parameters else command(**given)
        if answer is not None:
            answer.print(json=json)
            if answer.failed:
                raise typer.Exit(int(answer.failed))

    return taking(answered, [*({**parameters, "json": added}).values()])


def taking(command: Callable[..., T], parameters: Iterable[inspect.Parameter]) -> Callable[..., T]:
    """Make a function take these parameters, of which a command line makes arguments and options."""
    made = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    command.__signature__ = inspect.Signature(made)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in made}
    return command


def help_if_alone(context: typer.Context) -> None:
    """Show the help of a command group that is called without a command."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit


def say(text: str) -> None:
    """Print one line, as it is."""
    Line(text).print()


def _print_prose(text: str) -> None:
    for line in text.splitlines():
        out.print(Text(clean_text(line)))


def print_json(content: Any) -> None:
    """Print one JSON document to standard output."""
    sys.stdout.write(json.dumps(content, indent=2, ensure_ascii=False) + "\n")


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
    if isinstance(value, dict):
        return ", ".join(f"{key} {show(inner)}" for key, inner in value.items())
    return clean_text(str(value))


def of_result(result: RunResult) -> Iterator[Table | str]:
    """The metrics of a run or a baseline."""
    yield Table(result.title, ("", *result.shown), result.rows, result.leaky)
    yield from result.remarks
    if result.privacy:
        yield privacy_line(result.privacy)
    if result.bytes:
        up, down = result.bytes.up / 1024, result.bytes.down / 1024
        dp = (result.privacy or {}).get("epsilon") is not None
        chosen = "counts: under --dp, always the last" if dp else "was chosen on validation"
        yield (
            f"round {result.selected_round} of {result.rounds} {chosen}; "
            f"{result.seconds_per_round:.2f} s a round; "
            f"per client and round {up:,.1f} KiB up, {down:,.1f} KiB down"
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
