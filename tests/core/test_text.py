"""Text that somebody else wrote, made safe to show."""

from __future__ import annotations

import sys
import unicodedata

import pytest

from solera.core.text import clean_text


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("Amélie (2001) – 羅生門 🎬", "Amélie (2001) – 羅生門 🎬"),
        ("\x1b]0;owned\x07\x1b[2J", "]0;owned[2J"),
        ("\x9b31mred", "31mred"),
        ("a\tb\nc\r\nd\u2028e", "a b c  d e"),
        ("nul\0, del\x7f, bell\x07", "nul, del, bell"),
        ("annex\u202egpj.exe\u2066\u2069", "annexgpj.exe"),
        ("\ufeffzero\u200bwidth\u00ad", "zerowidth"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("👩\u200d🚀", "👩\u200d🚀"),
        ("half\ud83d", "half"),
        ("a\u00a0b", "a\u00a0b"),
        ("", ""),
    ],
)
def test_what_commands_a_terminal_is_removed(text, clean):
    assert clean_text(text) == clean
    assert clean_text(clean) == clean


def test_every_character():
    for number in range(sys.maxunicode + 1):
        character = chr(number)
        harmless = unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp")
        expected = (character,) if harmless or character in "\u200c\u200d" else ("", " ")
        assert clean_text(character) in expected, hex(number)
