"""Write docs/reference/commands, the reference of the command line, from the program itself.

python tools/docs/make_commands.py            rewrite the pages
python tools/docs/make_commands.py --check    change nothing; exit 1 and name the pages that are stale

Every command or group of commands has a page of its own.
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

FOLDER = Path("docs/reference/commands")
LEFT_OUT = ("install_completion", "show_completion", "help")
HEAD = """# The command line

Made by `python tools/docs/make_commands.py` from the program; `solera COMMAND --help` says the same.
Every command takes `--help`, and most take `--json`, which prints one JSON document. An error is two lines
on standard error, what is wrong and what to do next, and an exit code that is not 0.
"""


def pages() -> dict[Path, str]:
    """A page for every command or group of commands, with their options and examples, and the first page."""
    program = typer.main.get_command(app)
    below = subcommands(program)
    made = {
        FOLDER / f"{name}.md": "\n".join(_command(command, f"solera {name}", 1))
        for name, command in below.items()
    }
    rows = (f"| [solera {name}]({name}.md) | {_split(each.help or '')[0]} |" for name, each in below.items())
    listed = "\n".join(("| command | |\n|---|---|", *rows))
    made[FOLDER / "index.md"] = "\n".join((HEAD, f"{listed}\n", *_entry(program, "solera", 2)))
    return made


def _command(command: Any, path: str, level: int) -> Iterator[str]:
    """A command, and those below it."""
    yield from _entry(command, path, level)
    for name, below in subcommands(command).items():
        yield from _command(below, f"{path} {name}", min(level + 1, 4))


def _entry(command: Any, path: str, level: int) -> Iterator[str]:
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
    """Rewrite or check the pages under `root`."""
    made = {root / path: text for path, text in pages().items()}
    stale = [path for path, text in made.items() if not path.exists() or path.read_text("utf-8") != text]
    stale += [path for path in (root / FOLDER).glob("*.md") if path not in made]
    for path in stale:
        sys.stdout.write(f"{'stale' if '--check' in arguments else 'rewritten'}: {path.relative_to(root)}\n")
        if "--check" not in arguments:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path in made:
                path.write_text(made[path], "utf-8")
            else:
                path.unlink()
    return int("--check" in arguments and bool(stale))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).parents[2]))
