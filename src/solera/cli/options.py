"""Options that several commands have, those that are made from a list of settings, and how texts are read."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer

from solera.cli import catalogue
from solera.cli.output import Answer, taking

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

Protocol = Literal["strict", "paper", "global-time", "cold-items"]
DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Folder to search before SOLERA_DATA, the cache and the download."),
]
# For commands that do not wait for the list of settings to be loaded.
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
PresetName = Annotated[
    str | None,
    typer.Option(
        "--preset",
        help="Named settings (`solera methods --presets` lists them) or a .toml file, instead of a method.",
        autocompletion=catalogue.preset_names,
    ),
]
Threads = Annotated[
    int, typer.Option(help="Number of threads; 0 for one per core. Does not change results.", min=0)
]
_TAKEN = "settings"  # the parameter of a command that gets them
Command = Callable[..., Answer | None]


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


def takes_settings(*names: str) -> Callable[[Command], Command]:
    """Give a command an option for each of these settings of a run, by default all.

    Its parameter `settings` gets those that were given, as text or numbers, which `run_settings` reads.
    """
    from solera.runs.settings import SETTINGS, RunConfig

    return takes_fields(RunConfig, names or SETTINGS)


def takes_fields(model: type[BaseModel], names: Iterable[str] = ()) -> Callable[[Command], Command]:
    """Give a command an option for each of these fields of a model, by default all."""
    chosen = tuple(names or model.model_fields)

    def decorate(command: Command) -> Command:
        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(command, eval_str=True).parameters.values():
            if parameter.name == _TAKEN:
                parameters += [_parameter(name, model.model_fields[name]) for name in chosen]
            else:
                parameters.append(parameter)

        @functools.wraps(command)
        def with_settings(**given: Any) -> Answer | None:
            settings = {name: given.pop(name) for name in chosen}
            given_settings = {name: value for name, value in settings.items() if value is not None}
            return command(**given, settings=given_settings)

        return taking(with_settings, parameters)

    return decorate


def _parameter(name: str, field: FieldInfo) -> inspect.Parameter:
    """A command's option; None where it is not given."""
    kind = _kind(field)
    least: Any = next((m.ge for m in field.metadata if hasattr(m, "ge")), None)
    flag = f"--{name.replace('_', '-')}"
    names = f"{flag}/--no-{name.replace('_', '-')}" if kind is bool else flag
    option = typer.Option(
        names, help=field.description, min=least if kind is int else None, show_default=False
    )
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )


def _kind(field: FieldInfo) -> Any:
    """A number, bool or a choice; everything else is read from text."""
    annotation: Any = field.annotation
    given = get_args(annotation) if get_origin(annotation) is UnionType else (annotation,)
    return next((each for each in given if each in (int, float, bool) or get_origin(each) is Literal), str)
