"""The sentences on privacy in threat-model.frame: each stands where it says, and has its test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FRAME = (ROOT / "docs" / "federation" / "threat-model.frame").read_text(encoding="utf-8")
ROW = re.compile(r'^\| "(.+)" \| `(.+)` \| `(.+)`: `(.+)` \|$', re.MULTILINE)
ROWS = ROW.findall(FRAME)


def flat(text: str) -> str:
    """Text without line breaks, and without the joints of Python's strings."""
    return re.sub(r"\s+", " ", re.sub(r'"\s+f?"', "", text))


def stands(sentence: str, text: str) -> bool:
    """Whether the parts of a sentence stand there in their order, near to each other; … is any figure."""
    return re.search(r".{1,80}?".join(map(re.escape, sentence.split("…"))), flat(text)) is not None


def test_no_row_is_left_out():
    section = FRAME.partition("## Sentences on privacy")[2].partition("\n## ")[0]
    assert len(ROWS) == section.count("\n|") - 2 > 20


@pytest.mark.parametrize(("sentence", "where", "file", "test"), ROWS)
def test_a_sentence_and_its_test(sentence, where, file, test):
    text = (ROOT / where).read_text(encoding="utf-8")
    if where == "docs/federation/threat-model.frame":
        text = ROW.sub("", text)
    assert stands(sentence, text), f"{where} no longer says: {sentence}"
    named = f"def {test}(" if file.endswith(".py") else f'test("{test}"'
    assert named in (ROOT / file).read_text(encoding="utf-8"), f"{file} has no {test}"


def test_a_sentence_that_was_changed_is_noticed():
    source = 'f"Your upload is hidden in a sum over at least {least} devices"\n    f" and more."'
    assert stands("in a sum over at least … devices and more.", source)
    assert not stands("in a sum over at least … people", source)
