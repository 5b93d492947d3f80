"""Commands that are imported when they are called, Solera's own and those of other packages.

Other packages add theirs by entry points of the group `solera.commands`:

    [project.entry-points."solera.commands"]
    hello = "my_package.cli:hello"          # `solera hello`: a function or a `typer.Typer`
    "bench.hello" = "my_package.cli:hello"  # `solera bench hello`

`solera --help` reads their sources and imports none. A plug-in cannot replace a command of Solera.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

ENTRY_POINTS = "solera.commands"
PLUGINS = "Plug-ins"


class Place(NamedTuple):
    """Where a command is, as `module:name`, and the panel of `--help` in which it stands."""

    where: str
    panel: str

    @property
    def about(self) -> str:
        """The first paragraph of its help, read from the source without importing it."""
        module, _, name = self.where.partition(":")
        try:
            spec = find_spec(module)
        except ModuleNotFoundError:
            spec = None
        if spec is None or spec.origin is None:
            return "Cannot be imported."
        for node in ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body:
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
        for name, place in (*self.own.items(), *self._plugins()):
            self.commands.setdefault(name, Lazy(name, place))

    def _plugins(self) -> Iterator[tuple[str, Place]]:
        for entry in sorted(entry_points(group=ENTRY_POINTS)):
            name = entry.name.removeprefix(self.prefix)
            if entry.name.startswith(self.prefix) and "." not in name:
                yield name, Place(entry.value, PLUGINS)


def subcommands(command: Any) -> dict[str, Any]:
    """All commands of a group by name, imported; none of a command that is no group."""
    found = command.commands if isinstance(command, TyperGroup) else {}
    return {name: each.load() if isinstance(each, Lazy) else each for name, each in found.items()}
