"""Arguments that the commands of a device share, and the question before something is deleted."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

Folder = Annotated[Path, typer.Argument(help="Folder of the device.")]
User = Annotated[str, typer.Option(help="User whose history is used, if the device has several.")]
Yes = Annotated[bool, typer.Option("--yes", help="Delete without asking, as programs do.")]


def confirm(what: str, *, yes: bool, json: bool) -> None:
    """Ask before something is deleted. Without a terminal, only --yes is an answer."""
    from solera.core.errors import ConfigError

    if yes:
        return
    if json or not sys.stdin.isatty():
        raise ConfigError(f"{what} would be deleted, and nobody is there to confirm it", "give --yes")
    typer.confirm(f"Delete {what}?", abort=True, err=True)
