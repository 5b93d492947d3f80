"""Options that several commands have, and how their texts are read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from solera.cli import catalogue

Protocol = Literal["strict", "paper", "global-time", "cold-items"]
DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Folder to search before SOLERA_DATA, the cache and the download."),
]
MinInteractions = Annotated[
    int | None,
    typer.Option(
        "--min-interactions", help="Remove users with fewer interactions (default: as in the papers)."
    ),
]
Columns = Annotated[
    str | None, typer.Option("--columns", help="Columns of your own file, e.g. user=who,item=what,time=when.")
]
Plugins = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin",
        help="A plug-in, e.g. elastic-merge; repeatable. `solera methods` lists them.",
        autocompletion=catalogue.plugin_names,
    ),
]
Options = Annotated[
    list[str] | None,
    typer.Option("-o", "--option", help="One of the method's options, key=value; repeatable."),
]
_DATA = typer.Option(
    "--data",
    help="A data set's name, or your own .csv, .tsv or .parquet file.",
    autocompletion=catalogue.dataset_names,
)
Data = Annotated[str, _DATA]
OptionalData = Annotated[str | None, _DATA]
ProtocolName = Annotated[
    Protocol, typer.Option(help="How test items are held out; `paper` leaks them into training.")
]
PresetName = Annotated[
    str | None,
    typer.Option(
        "--preset",
        help="Named settings (`solera methods --presets` lists them) or a .toml file, instead of a method.",
        autocompletion=catalogue.preset_names,
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of all random numbers.", min=0)]
Threads = Annotated[
    int, typer.Option(help="Number of threads; 0 for one per core. Does not change results.", min=0)
]


def parse_columns(text: str | None) -> dict[str, str] | None:
    """`user=who,item=what` as a dictionary."""
    return None if text is None else parse_pairs(text.split(","), "--columns user=…,item=…")


def parse_numbers(text: str, option: str) -> tuple[int, ...]:
    """`1,5,10` as numbers."""
    from solera.core.errors import ConfigError

    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(f"{option} {text!r} is not a list of numbers", f"write {option} 1,5,10") from None


def parse_pairs(pairs: list[str], example: str) -> dict[str, str]:
    """`key=value` texts as a dictionary."""
    from solera.core.text import key_values

    return key_values(pairs, example)
