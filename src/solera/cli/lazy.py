"""Commands that are imported when they are called, Solera's own and those of other packages.

`solera --help` reads their sources and imports none. A plug-in cannot replace a command of Solera.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from solera.core import extensions

PLUGINS = "Plug-ins"


@cache
def _source(module: str) -> str | None:
    """The source of a module; None if there is none."""
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:
        return None
    return Path(spec.origin).read_text(encoding="utf-8") + "\n" if spec and spec.origin else None


class Place(NamedTuple):
    """Where a command is, as `module:name`, and the panel of `--help` in which it stands."""

    where: str
    panel: str

    @property
    def about(self) -> str:
        """The first paragraph of its help, read from the source without importing it."""
        module, _, name = self.where.partition(":")
        source = _source(module)
        if source is None:
            return "Cannot be imported."
        # The definition alone, up to the next line that is not indented, is faster than the whole file.
        found = re.search(rf"^(?:def {name}\(|{name} = ).*\n(?:[ )].*\n|\n)*", source, re.MULTILINE)
        try:
            statements = ast.parse(found[0] if found else "").body
        except SyntaxError:  # a text goes on at the margin
            statements = ast.parse(source).body
        for node in statements:
            if isinstance(node, ast.FunctionDef) and node.name == name:
                return (ast.get_docstring(node) or "").partition("\n\n")[0]
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
                given = node.value.keywords if isinstance(node.value, ast.Call) else []
                return next((ast.literal_eval(each.value) for each in given if each.arg == "help"), "")
        return ""


class Lazy(TyperCommand):
    """A command that is not imported yet."""

    def __init__(self, name: str, place: Place) -> None:
        self._place = place
        super().__init__(name, callback=None, rich_help_panel=place.panel)

    @property
    def help(self) -> str:
        """Read when it is shown."""
        return self._place.about

    @help.setter  # noqa: A003
    def help(self, _: str | None) -> None:
        """Only the command itself has one."""

    @property
    def where(self) -> str:
        """The command, as `module:name`."""
        return self._place.where

    def load(self) -> Any:
        """Import the command."""
        module, _, attribute = self.where.partition(":")
        found = getattr(import_module(module), attribute)
        if isinstance(found, typer.Typer):
            group = typer.main.get_group(found)
            group.name = self.name
            return group
        made = typer.Typer(add_completion=False)
        made.command(self.name)(found)
        return typer.main.get_command(made)

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Make the context of the command itself."""
        return self.load().make_context(info_name, args, parent=parent, **extra)


class Pluggable(TyperGroup):
    """A group with commands that are imported when they are called."""

    own: ClassVar[dict[str, Place]] = {}
    prefix = ""  # of the entry points' names

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        for name, place in self.own.items():
            self.commands[name] = Lazy(name, place)

    def plug_in(self) -> None:
        """Add the commands of other packages, which takes a look at every installed package."""
        for entry in extensions.entries("commands"):
            name = entry.name.removeprefix(self.prefix)
            if entry.name.startswith(self.prefix) and "." not in name:
                self.commands.setdefault(name, Lazy(name, Place(entry.value, PLUGINS)))

    def list_commands(self, ctx: Any) -> list[str]:
        """All names."""
        self.plug_in()
        return super().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command with this name. Those of other packages are looked for last."""
        if cmd_name not in self.commands:
            self.plug_in()
        return super().get_command(ctx, cmd_name)


def subcommands(command: Any) -> dict[str, Any]:
    """All commands of a group by name, imported; none of a command that is no group."""
    if isinstance(command, Pluggable):
        command.plug_in()
    found = command.commands if isinstance(command, TyperGroup) else {}
    return {name: each.load() if isinstance(each, Lazy) else each for name, each in found.items()}
