"""The page about scale: made from few records or many, and it says what is missing."""

from __future__ import annotations

import re

import pytest

import scale_records as made
from programs import program
from solera.study.records import Store
from solera_research.scale.points import FULL, points
from solera_research.scale.records import ScaleRecord

make_scale = program("docs/make_scale")


def page(tmp_path, records) -> str:
    (tmp_path / "docs/images").mkdir(parents=True, exist_ok=True)
    if records:
        Store(tmp_path / make_scale.RECORDS, ScaleRecord).add(*records)
    assert make_scale.main([], tmp_path) == 0
    assert make_scale.main(["--check"], tmp_path) == 0
    text = (tmp_path / make_scale.PAGE).read_text(encoding="utf-8")
    shown = set(re.findall(r"\]\(\.\./(images/[^)]+)\)", text))
    assert shown == {f"images/{path.name}" for path in (tmp_path / "docs/images").glob("*.svg")}
    return text


def test_without_records_it_says_so(tmp_path):
    text = page(tmp_path, [])
    assert f"0 of {len(points(FULL))} points are measured" in text
    assert "There are no records yet." in text
    assert "| fedease | 400 TB |" in text  # what follows from definitions needs no records


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_with_few_records(tmp_path, count):
    text = page(tmp_path, made.some()[:count])
    assert f"{count} of {len(points(FULL))} points are measured" in text
    assert "`u1e5-i1e5-r2x1`" in text


def test_with_all_of_two_methods(tmp_path):
    text = page(tmp_path, made.some() + made.some("pfedrec"))
    assert "\n- fedmf: " not in text
    assert "\n- fedrap: `u1e4-i1e5-r1x2`" in text
    assert len(list((tmp_path / "docs/images").glob("*.svg"))) == 9
    assert "| fedmf | 1e6 × 1e5 |" in text
    row = next(
        line for line in text.splitlines() if "`fedmf-u1e6-i1e5-r1x2`" in line and "of a round" in line
    )
    assert row.split("|")[-2].strip() == "1.00"  # the records follow the model without noise


def test_pictures_that_are_not_made_any_more_are_removed(tmp_path):
    page(tmp_path, made.some())
    for path in [tmp_path / make_scale.RECORDS]:
        path.unlink()
    assert make_scale.main(["--check"], tmp_path) == 1
    assert make_scale.main([], tmp_path) == 0
    assert list((tmp_path / "docs/images").glob("*.svg")) == []
