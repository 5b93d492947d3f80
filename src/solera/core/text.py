"""Text that somebody else wrote, made safe to show."""

from __future__ import annotations

from unicodedata import category

_BREAKS = "\t\n\r\u2028\u2029"
_JOINERS = "\u200c\u200d"  # Persian and Indian names need them, and many emoji
_REMOVED = ("Cc", "Cf", "Cs")  # control and format characters, and halves of a character


def clean_text(text: str) -> str:
    """The text without characters that command a terminal, hide, or change the order of what is shown.

    Tabs and line breaks become spaces. Halves of a character go as well, because no file can hold them.
    """
    if text.isprintable():
        return text
    return "".join(" " if c in _BREAKS else c for c in text if c in _BREAKS + _JOINERS or not _removed(c))


def _removed(character: str) -> bool:
    return category(character) in _REMOVED
