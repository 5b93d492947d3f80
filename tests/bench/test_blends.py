"""Blends as entries of a matrix: three records of one entry, and what is refused."""

from __future__ import annotations

import threading

import pytest
from benchmark import OWN, matrix, ratings

from solera.bench.blends import Blending
from solera.bench.blocks import blocks
from solera.bench.jobs import Job
from solera.bench.records import read, read_all
from solera.bench.runner import make_plan
from solera.bench.tables import make_tables
from solera.bench.worker import Done, perform
from solera.core.errors import ConfigError
from solera.runs.blend import WEIGHTS

RUNS = f"""
[[run]]
{OWN}methods = ["fedslist"]
seeds = [0, 1]

[[run]]
{OWN}methods = ["fedease"]
seeds = [0, 1]

[[run]]
{OWN}baselines = ["slist", "ease", "popularity"]
"""
FEDERATED = '[[blend]]\nof = ["fedslist", "fedease"]\n'
CENTRAL = '[[blend]]\nof = ["slist", "ease"]\nlabel = "central blend"\n'


@pytest.fixture
def folder(tmp_path, monkeypatch):
    ratings(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_blends_stand_in_place_of_their_parts(folder):
    found = matrix(folder, RUNS + FEDERATED + CENTRAL)
    titles = [str(entry) for entry in found.entries]
    assert titles == [
        "popularity on ratings, strict, seed 0",
        "fedslist & fedease on ratings, strict, seed 0, a blend",
        "fedslist & fedease on ratings, strict, seed 1, a blend",
        "central blend on ratings, strict, seed 0, a blend",
    ]
    assert [entry.asked.kind for entry in found.entries[1:]] == ["method", "method", "baseline"]


def test_a_blend_has_a_record_like_those_of_its_parts(folder):
    found = matrix(folder, RUNS + FEDERATED + CENTRAL)
    blends = [entry for entry in found.entries if isinstance(entry, Blending)]
    for entry in blends:
        job = Job(entry, found.record(entry), folder / "work", None)
        assert isinstance(perform(job, threading.Event(), lambda _: None), Done)
        both = read(found.record(entry))
        parts = [read(found.results / part.asked.name) for part in entry.parts]
        assert both.config["first"]["options"] == parts[0].config["options"]
        assert both.result.options["weight"] in WEIGHTS
        for ndcg in (both.ndcg("train"), both.ndcg("validation")):
            assert ndcg is not None and len(ndcg) == 30  # every user has a rank with either history
        figures = [each.result.validation.full["ndcg@10"] for each in (both, *parts)]
        assert figures[0] == max(figures)
        assert both.seconds == sum(part.seconds for part in parts)
    assert both.bytes_until_selected is None
    one, other, sum_of_both = (
        read(path).bytes_until_selected
        for path in (*(found.results / part.asked.name for part in blends[0].parts), found.record(blends[0]))
    )
    assert one and other and sum_of_both
    assert sum_of_both.up == pytest.approx(one.up + other.up)
    assert make_plan(found).todo == [found.entries[0]]
    (board,) = blocks(read_all(found.results))  # seeds of a blend are of one row
    assert {row.name: len(row.records) for row in board.rows} == {
        "fedslist": 2,
        "fedease": 2,
        "fedslist & fedease": 2,
        "slist (centralized)": 1,
        "ease (centralized)": 1,
        "central blend (centralized)": 1,
    }
    assert "central blend" in "".join(table.markdown() for table in make_tables([board]))
    (found.results / blends[0].parts[0].asked.name).unlink()
    assert make_plan(found).todo == [found.entries[0], blends[0]]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[blend]]\nof = ["fedslist", "slist2"]', "blend 1: no run of 'fedslist' has"),
        ('[[blend]]\nof = ["fedslist"]', "blend 1: of: "),
        ('[[blend]]\nof = ["slist", "ease"]\nlabel = "popularity"', "would overwrite the record of run 3"),
    ],
)
def test_blends_that_do_not_fit_are_refused(folder, text, said):
    with pytest.raises(ConfigError, match=said):
        matrix(folder, RUNS + text)
