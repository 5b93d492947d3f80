"""Commands of other packages, by entry points of the group `solera.commands`.

    [project.entry-points."solera.commands"]
    hello = "my_package.cli:hello"          # `solera hello`: a function or a `typer.Typer`
    "bench.hello" = "my_package.cli:hello"  # `solera bench hello`

A command is imported when it is called. `solera --help` reads its name and the name of its package alone.
A plug-in cannot replace a command of Solera.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

GROUP = "solera.commands"
PANEL = "Plug-ins"


class Plugin(TyperCommand):
    """A command of another package, not imported yet."""

    def __init__(self, name: str, entry: EntryPoint) -> None:
        package = entry.dist.name if entry.dist else entry.module
        super().__init__(name, callback=None, help=f"From {package}.", rich_help_panel=PANEL)
        self._entry = entry

    def load(self) -> Any:
        """Import the command."""
        found = self._entry.load()
        if not isinstance(found, typer.Typer):
            made = typer.Typer(add_completion=False)
            made.command(self.name)(found)
            return typer.main.get_command(made)
        loaded = typer.main.get_group(found)
        loaded.name = self.name
        return loaded

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Make the context of the command itself."""
        return self.load().make_context(info_name, args, parent=parent, **extra)


class Pluggable(TyperGroup):
    """A group of commands to which other packages add theirs."""

    prefix = ""  # of the entry points' names

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of all commands, those of plug-ins last."""
        own = super().list_commands(ctx)
        return [*own, *(name for name in sorted(self._entries()) if name not in own)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command by its name; None if there is none."""
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        entry = self._entries().get(cmd_name)
        return Plugin(cmd_name, entry) if entry else None

    def _entries(self) -> Mapping[str, EntryPoint]:
        found = entry_points(group=GROUP)
        inner = {e.name.removeprefix(self.prefix): e for e in found if e.name.startswith(self.prefix)}
        return {name: entry for name, entry in inner.items() if "." not in name}


class PluggableBench(Pluggable):
    """`solera bench`."""

    prefix = "bench."
