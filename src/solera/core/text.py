"""Text: pairs that a user types, a number with its noun, and text from others made safe."""

from __future__ import annotations

from collections.abc import Iterable
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
