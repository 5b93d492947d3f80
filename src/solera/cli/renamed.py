"""Names of version 0.2, of commands and of options. They work until 0.4, with a warning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from solera.cli.output import err

OPTIONS = {
    "--at": "--cutoffs",
    "--select-by": "--metric",
    "--test-twice": "--both-tests",
    "--test-once": "--no-both-tests",
    "--wire": "--noise",
    "--with": "--plugin",
    "--methods": "--import",
    "--methods-file": "--import",
    "--no-plain": "--no-allow-plain",
}


class Now(NamedTuple):
    """What a command is called today. Its arguments stand where `{}` does, else behind it."""

    words: str
    options: Mapping[str, str] = {}  # that have another name there


COMMANDS = {
    "presets": Now("methods --presets"),
    "baseline": Now("train"),
    "similar": Now("recommend {} --like {}"),
    "data clear": Now("doctor --clear"),
    "data list": Now("data show"),
    "data stats": Now("data show"),
    "bundle vectors": Now("bundle show", {"-o": "--vectors", "--output": "--vectors"}),
    "device back": Now("device update --back"),
    "device watch": Now("device import {} jellyfin {} --watch 10", {"--every": "--watch"}),
    "device remove": Now("device forget"),
    "device pause": Now("device leave --pause"),
    "device refresh": Now("device connect {} --refresh"),
    "device token create": Now("device token {} --create {}"),
    "device token list": Now("device token"),
    "device token revoke": Now("device token {} --revoke {}"),
    "node accept": Now("device join"),
    "node leave": Now("device leave"),
    "bench tune": Now("bench run --tune-only"),
    "bench budgets": Now("bench tuned"),
    "bench presets": Now("bench tuned"),
}
_FLAGS = ("--json", "-h", "--help")  # of the commands whose arguments are moved: their only ones


def with_new_names(arguments: list[str]) -> list[str]:
    """The arguments with today's names, and a warning for each that has another."""
    given = [_renamed(argument, OPTIONS) for argument in arguments]
    first = next((n for n, each in enumerate(given) if not _is_option_or_value(given, n)), len(given))
    for length in (3, 2, 1):
        name = " ".join(given[first : first + length])
        if now := COMMANDS.get(name):
            _warn(name, now.words.replace(" {}", ""))
            rest = [_renamed(each, now.options, quiet=True) for each in given[first + length :]]
            return [*given[:first], *_placed(now.words, rest)]
    return given


def _renamed(argument: str, names: Mapping[str, str], *, quiet: bool = False) -> str:
    name, equals, value = argument.partition("=")
    if name not in names:
        return argument
    if not quiet:
        _warn(name, names[name])
    return f"{names[name]}{equals}{value}"


def _is_option_or_value(given: list[str], number: int) -> bool:
    """Whether it belongs to what stands before a command: `--traceback` or `--import FILE`."""
    return given[number].startswith("-") or (number > 0 and given[number - 1] == "--import")


def _placed(words: str, given: list[str]) -> list[str]:
    """The words of a command with its first arguments in place of `{}`, and the rest behind them."""
    positions = list(_arguments(given))
    taken = positions[: words.count("{}")]
    values = iter([given[number] for number in taken])
    placed = [value for word in words.split() for value in ([word] if word != "{}" else islice(values, 1))]
    return [*placed, *(each for number, each in enumerate(given) if number not in taken)]


def _arguments(given: list[str]) -> Iterator[int]:
    """Which of them are arguments: neither an option nor the value of one."""
    for number, each in enumerate(given):
        before = given[number - 1] if number else ""
        is_value = before.startswith("-") and "=" not in before and before not in _FLAGS
        if not each.startswith("-") and not is_value:
            yield number


def _warn(before: str, now: str) -> None:
    err.print(f"[yellow]warning:[/] {before} is now {now}", highlight=False)
