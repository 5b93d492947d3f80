"""Text: pairs that a user types, a number with its noun, text from others made safe, and templates."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any
from unicodedata import category

from solera.core.errors import ConfigError

_BREAKS = "\t\n\r\u2028\u2029"
_JOINERS = "\u200c\u200d"  # needed by Persian and Indian names, and by many emoji
_REMOVED = ("Cc", "Cf", "Cs")  # control characters, format characters and surrogates


def clean_text(text: str) -> str:
    """Remove characters that control a terminal, are invisible, or change the display order.

    Tabs and line breaks become spaces. Unpaired surrogates are removed too, because they cannot be written to
    a file.
    """
    if text.isprintable():
        return text
    return "".join(" " if c in _BREAKS else c for c in text if c in _BREAKS + _JOINERS or not _removed(c))


def _removed(character: str) -> bool:
    return category(character) in _REMOVED


def counted(number: int, one: str, many: str) -> str:
    """A number with its noun."""
    return f"1 {one}" if number == 1 else f"{number:,} {many}"


def key_values(pairs: Iterable[str], example: str) -> dict[str, str]:
    """`key=value` texts as a dictionary."""
    listed = list(pairs)
    for pair in listed:
        if "=" not in pair:
            raise ConfigError(f"{pair!r} is not of the form key=value", f"write {example}")
    return {key.strip(): value.strip() for key, value in (pair.split("=", 1) for pair in listed)}


def render(package: str, name: str, **content: Any) -> str:
    """Render a template from the package's `templates` folder. All inserted values are escaped."""
    return str(_environment(package).get_template(name).render(content))


@cache
def _environment(package: str) -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - only pages need it

    return Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
