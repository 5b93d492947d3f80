"""Write docs/reference/commands.md, the reference of the command line, from the program itself.

python tools/docs/make_commands.py            rewrite the page
python tools/docs/make_commands.py --check    change nothing; exit 1 if the page is stale
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from solera.cli import app
from solera.cli.lazy import subcommands

PAGE = Path("docs/reference/commands.md")
LEFT_OUT = ("install_completion", "show_completion", "help")
HEAD = """# The command line

Made by `python tools/docs/make_commands.py` from the program; `solera COMMAND --help` says the same.
Every command takes `--help`, and most take `--json`, which prints one JSON document. An error is two lines
on standard error, what is wrong and what to do next, and an exit code that is not 0.
"""


def page() -> str:
    """All commands, each with its arguments, options and examples."""
    return "\n".join((HEAD, *_command(typer.main.get_command(app), "solera", 2)))


def _command(command: Any, path: str, level: int) -> Iterator[str]:
    yield f"{'#' * level} {path}\n"
    about, examples = _split(command.help or "")
    yield f"{about}\n"
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [
        one
        for one in command.params
        if one.param_type_name == "option" and one.name not in LEFT_OUT and not one.hidden
    ]
    if arguments or not isinstance(command, TyperGroup):
        names = (one.make_metavar(_context(command)) for one in arguments)
        yield f"```text\n{' '.join((path, '[OPTIONS]', *names))}\n```\n"
    rows = [(f"`{(one.metavar or one.name).strip('[]').upper()}`", one.help or "", "") for one in arguments]
    rows += [(_flags(one), _about(one), _default(one)) for one in options]
    if rows:
        yield "| | | default |\n|---|---|---|"
        yield "\n".join("| " + " | ".join(map(_cell, row)) + " |" for row in rows) + "\n"
    if examples:
        yield "```console\n" + "\n".join(examples) + "\n```\n"
    for name, below in subcommands(command).items():
        yield from _command(below, f"{path} {name}", min(level + 1, 4))


def _context(command: Any) -> Any:
    return command.context_class(command)


def _split(text: str) -> tuple[str, list[str]]:
    """What a command does, and its examples."""
    paragraphs = [" ".join(each.split()) for each in text.split("\n\n")]
    examples = [each.removeprefix("Example: ") for each in paragraphs if each.startswith("Example: ")]
    return "\n\n".join(each for each in paragraphs if not each.startswith("Example: ")), examples


def _flags(option: Any) -> str:
    names = ", ".join((*option.opts, *option.secondary_opts))
    value = "" if option.is_flag else f" {option.type.name.split()[0].upper()}"
    return f"`{names}{value}`"


def _about(option: Any) -> str:
    choices = getattr(option.type, "choices", ())
    return " ".join(filter(None, (option.help, f"One of {', '.join(choices)}." if choices else "")))


def _default(option: Any) -> str:
    given = option.default
    empty = given is None or given is False or given == "" or callable(given) or option.multiple
    return "" if empty else f"`{given}`"


def _cell(text: str) -> str:
    return re.sub(r"([|\[])", r"\\\1", " ".join(text.split()))


def main(arguments: Sequence[str], root: Path) -> int:
    """Rewrite or check the page under `root`."""
    made, file = page(), root / PAGE
    if file.exists() and file.read_text("utf-8") == made:
        return 0
    if "--check" in arguments:
        sys.stdout.write(f"stale: {PAGE}\n")
        return 1
    file.write_text(made, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).parents[2]))
