"""Command lines in files that others run: of commands and options that exist."""

from __future__ import annotations

import typer

from solera.cli import app


def check_command(words: list[str]) -> None:
    """Every command and every option of a command line of Solera's is one that there is."""
    command = typer.main.get_command(app)
    while hasattr(command, "commands"):
        name = words.pop(0)
        assert name in command.commands, name
        command = command.commands[name]
    known = {name for each in command.params for name in each.opts}
    given = {word.split("=")[0] for word in words if word.startswith("-")}
    assert given <= known, given - known
