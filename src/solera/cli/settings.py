"""Options of commands that are made from the settings of a run, so that they are listed once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import UnionType
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from solera.cli.output import Answer, taking
from solera.runs.settings import SETTINGS, RunConfig

_TAKEN = "settings"  # the parameter of a command that gets them


def takes_settings(*names: str) -> Callable[[Callable[..., Answer | None]], Callable[..., Answer | None]]:
    """Give a command an option for each of these settings of a run, by default all.

    Its parameter `settings` gets those that were given, as text or numbers, which `run_settings` reads.
    """
    chosen = names or SETTINGS

    def decorate(command: Callable[..., Answer | None]) -> Callable[..., Answer | None]:
        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(command, eval_str=True).parameters.values():
            if parameter.name == _TAKEN:
                parameters += [_parameter(name, RunConfig.model_fields[name]) for name in chosen]
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
    """int, bool or a choice; everything else is read from text."""
    annotation: Any = field.annotation
    given = get_args(annotation) if get_origin(annotation) is UnionType else (annotation,)
    return next((each for each in given if each in (int, bool) or get_origin(each) is Literal), str)
