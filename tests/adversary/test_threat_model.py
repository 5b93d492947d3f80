"""The threat model is made from this suite, and from all of it."""

from __future__ import annotations

import runpy
from pathlib import Path

PROGRAM = runpy.run_path(
    str(Path(__file__).parents[2] / "tools" / "docs" / "make_threat_model.py"), run_name="made"
)


def test_every_attack_has_a_figure_and_no_figure_is_left_over():
    measured = [each._replace(after=()) for each in PROGRAM["measured"]()]
    assert set(PROGRAM["declared"]()) <= set(measured)
    assert len(measured) >= 25
    for each in measured:
        assert f"def {each.test}(" in (PROGRAM["TESTS"] / each.file).read_text(encoding="utf-8")


def test_the_page_is_what_would_be_written():
    assert PROGRAM["PAGE"].read_text(encoding="utf-8") == PROGRAM["page"]()


def test_every_adversary_has_a_section():
    assert {each.adversary for each in PROGRAM["measured"]()} == PROGRAM["ADVERSARIES"].keys()
