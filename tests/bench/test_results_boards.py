"""Boards of the results page: which records they are made of, which tuning they name, what they lack."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmark import made

from programs import program
from solera.bench.records import write
from solera.bench.studies import Study

make_pages = program("docs/make_pages")
MATRIX = """
[[tune]]
datasets = ["toy", "later"]
methods = ["fedmf", "fedncf+plug"]
baselines = ["popularity"]
labels."fedncf+plug" = "better"
"""


def study(label: str, dataset: str, trials: int) -> Study:
    trial = {"options": {}, "end": "finished", "ndcg": 0.5, "rounds": 1, "seconds": 1.0}
    fields = {"label": label, "kind": "method", "dataset": dataset, "protocol": "strict", "seed": 0}
    more = {"config": {}, "environment": {}, "code": {}, "space": {"reg": {}}, "trials": [trial] * trials}
    return Study.model_validate(fields | more)


@pytest.fixture
def kept(tmp_path: Path):
    records = tmp_path / "experiments" / "records"
    matrices = tmp_path / "experiments" / "matrices"
    matrices.mkdir(parents=True)
    (matrices / "strict.toml").write_text(MATRIX)
    both = [("results", "tuning", 4), ("strict", "strict-tuning", 24)]
    for results, tuning, trials in both:
        hits = [1.0] * 40 if results == "strict" else [11.0] * 40
        for record in (made("fedmf", hits), made("popularity", [11.0] * 40, kind="baseline")):
            write(record, records / results / record.name)
        made_of = study("fedmf", "toy", trials)
        write(made_of, records / tuning / made_of.name)
    # Of the earlier search alone: a data set, a method, and defaults that the new search begins with
    for record in (
        made("fedmf", [1.0, 11.0], dataset="old"),
        made("local", [11.0] * 40),
        made("fedmf, defaults", [11.0] * 40),
    ):
        write(record, records / "results" / record.name)
    return make_pages.Kept.read(tmp_path)


def test_equal_tuning_comes_first(kept):
    old, toy = kept.boards
    assert (old.title, toy.title) == ("old, strict", "toy, strict")
    assert toy.tuning == (
        "[equal tuning](benchmarks.md#equal-tuning) (24 trials for each model), for 2 of 3 models so far: "
        "`fedmf`, `popularity`; all others by an earlier, shorter search (4 trials for each model)"
    )
    assert old.tuning == "an earlier, shorter search (no study is recorded)"
    assert [(row.label, row.ndcg) for row in toy.block.rows] == [
        ("fedmf", 1.0),  # the earlier record has 0
        ("local", 0.0),
        ("popularity", 0.0),
    ]
    assert toy.block.missing == {"better": "not run"}
    assert len(kept.newest) == 4


def test_a_board_of_equal_tuning_alone(kept):
    whole = make_pages.boards(
        ([run for run in kept.newest if run.label != "local"][:2], [], []), ([], [], []), {}
    )
    assert [board.tuning for board in whole] == [
        "[equal tuning](benchmarks.md#equal-tuning) (no study is recorded)"
    ]


def test_what_the_page_says(kept):
    shows = make_pages.overall(kept.boards, kept.asked)
    assert "| toy, strict; train | 2 | `fedmf` | not run | not run | 2 |" in shows
    assert "| toy, strict; train + validation | not run |" in shows
    assert "| old, strict; train | 1 | not run | not run | not run | 0 |" in shows, "nothing to compare with"
    assert shows.endswith("Not run at all: later (strict).")
    page = make_pages.one_by_one(kept.boards)
    assert "- Above popularity: `fedmf`." in page
    assert "Not run here: `better`." in page
    assert "(comparisons.md#toy-strict)" in page
    assert "## toy, strict\n\n2 comparisons." in make_pages.pair_by_pair(kept.boards)
