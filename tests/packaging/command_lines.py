"""Command lines in files that others run: of commands and options that exist."""

from __future__ import annotations

import typer

from solera.cli import app
from solera.cli.lazy import subcommands


def check_command(words: list[str]) -> None:
    """Every command and every option of a command line of Solera's is one that there is."""
    command = typer.main.get_command(app)
    while known := subcommands(command):
        name = words.pop(0)
        assert name in known, name
        command = known[name]
    options = {name for each in command.params for name in each.opts}
    given = {word.split("=")[0] for word in words if word.startswith("-")}
    assert given <= options, given - options
