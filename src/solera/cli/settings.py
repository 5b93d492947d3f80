"""Options of commands that are made from a list of settings, so that these are listed once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from types import UnionType
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from solera.cli.output import Answer, taking

_TAKEN = "settings"  # the parameter of a command that gets them
Command = Callable[..., Answer | None]


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
