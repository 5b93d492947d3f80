"""Counts of reproduced cells, derived by hand, and a reason for every cell that is not close."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from benchmark import made

import solera_research.papers as module
from in_process import solera
from solera_research.papers import Paper, papers
from solera_research.papers.cells import RECORDS, Cell, Result, Stored
from solera_research.papers.summary import (
    LeftOut,
    Line,
    all_results,
    left_out,
    summary,
    total,
    unique_runs,
    verdict,
    why_outside,
)

ROOT = Path(__file__).parents[2]
TOY = """
name = "Toy"
title = "Toy"
about = "Small."
no_data = { "Nowhere" = "nobody has it" }
why = { "FedMF" = { filmtrust = "Because." } }
settings = { given = ["FedMF"] }
not_attempted = [{ tables = ["table-3"], why = "It is noise." }]

[rows]
key = "toy"
citation = "Nobody 2020"
datasets = { "Films" = { name = "filmtrust" } }
runs = { "FedMF" = { method = "fedmf", options = { embedding_size = 16 } } }

[[table]]
id = "table-1"
title = "All"
columns = ["Films", "Nowhere"]
[table.rows]
"FedMF" = "0.5 | 0.25 | 1 | 1"

[[table]]
id = "table-2"
title = "Sizes"
columns = ["Films"]
metrics = ["hr@10", "parameters"]
of = "FedMF"
vary = "embedding_size"
why."8".filmtrust = "Too small."
[table.rows]
"8" = "0.25 | 100"
"16" = "– | 200"
"32" = "– | 400"

[[table]]
id = "table-3"
title = "Noise"
columns = ["Films"]
of = "FedMF"
vary = "noise"
[table.rows]
"0" = "0.5 | 0.25"
"1" = "0.5 | 0.25"
"""
# `made` gives half of the full-ranking figures as those against 99 negatives: ranks 1 and 1 give 0.5 and 0.5,
# ranks 3 and 3 give an NDCG@10 of 0.25.
CLOSE, FAR = made("fedmf", [3.0, 3.0]), made("fedmf", [1.0, 1.0])


@pytest.fixture
def toy() -> Paper:
    return Paper(key="toy", **tomllib.loads(TOY))


def result(paper: Paper, table: str, row: str, column: int = 0, record=None) -> Result:
    found = paper.tables[table]
    cell = Cell(paper, found, row, found.columns[column], found.published(row)[column], anywhere=True)
    return Result(cell, [record] if record else [])


def test_counts_by_hand(toy):
    results = [
        result(toy, "table-1", "FedMF", record=CLOSE),
        result(toy, "table-1", "FedMF", record=FAR),  # 0.25 too high in NDCG@10
        result(toy, "table-1", "FedMF"),
        result(toy, "table-1", "FedMF", column=1),
        result(toy, "table-2", "8", record=CLOSE),  # 0.25 too high in HR@10
        result(toy, "table-2", "16", record=CLOSE),  # nothing printed that counts
    ]
    assert [verdict(each) for each in results] == [
        *("within", "outside", "not run", "cannot be run", "outside", None)
    ]
    lines, outside = summary(results)
    assert lines == [Line("Toy", "Films", 4, 3, 1, 2, 1, 0), Line("Toy", "Nowhere", 1, 0, 0, 0, 0, 1)]
    assert total(lines) == Line("all", "", 5, 3, 1, 2, 1, 1)
    assert [(each.table, each.row, each.why) for each in outside] == [
        ("toy/table-1", "FedMF", "Because."),
        ("toy/table-2", "8", "Too small."),
    ]
    assert outside[0].difference == pytest.approx({"hr@10": 0.0, "ndcg@10": 0.25})


def test_a_run_counts_once(toy):
    """Noise 0 and size 16 are the settings of the row itself; a run is within if all its cells are."""
    results = [
        result(toy, "table-1", "FedMF", record=CLOSE),
        result(toy, "table-3", "0", record=CLOSE),
        result(toy, "table-2", "8", record=CLOSE),  # outside
        result(toy, "table-3", "1"),
    ]
    given, open_, chosen = unique_runs(results)
    assert given[1:] == (2, 1, 1, 0, 1)
    assert open_[1:] == chosen[1:] == (0, 0, 0, 0, 0)
    results[1] = result(toy, "table-3", "0", record=FAR)
    assert unique_runs(results)[0][1:] == (2, 0, 2, 0, 1)
    careful = toy.model_copy(update={"settings": {}})
    assert unique_runs([result(careful, "table-1", "FedMF", record=CLOSE)])[2][1:] == (1, 1, 0, 0, 0)


def test_what_is_not_attempted_is_listed_with_its_reason(toy):
    results = [result(toy, "table-3", "0", record=CLOSE), result(toy, "table-3", "1")]
    assert [verdict(each) for each in results] == ["within", "not attempted"]
    assert results[1].why == "not attempted"
    assert left_out(results) == [LeftOut("Toy", "table-3", 1, "It is noise.")]


def test_the_reason_of_a_run_does_not_hold_for_other_settings(toy):
    assert why_outside(result(toy, "table-1", "FedMF").cell) == "Because."
    assert why_outside(result(toy, "table-2", "16").cell) == "Because.", "the run itself"
    assert why_outside(result(toy, "table-2", "32").cell) == ""


@pytest.mark.slow
def test_every_cell_outside_has_a_reason():
    for each in all_results(papers().values(), Stored(ROOT / RECORDS)):
        found, where = verdict(each), f"{each.cell.paper.key}/{each.cell.table.id}, {each.cell.row}"
        if found == "outside":
            why = why_outside(each.cell)
            assert why, f"{where} is not close to the printed figures: say why in the paper's file"
            assert why.endswith("."), where
            assert why.count(". ") == 0, f"{where}: one sentence"


def test_command(monkeypatch, toy, tmp_path):
    monkeypatch.setattr(module, "papers", lambda: {"toy": toy})
    printed = json.loads(solera("paper", "summary", "--records", tmp_path, "--json").stdout)
    assert printed["all"]["published"] == 5
    assert printed["lines"][0] | {"paper": "Toy", "not_run": 4} == printed["lines"][0]
    assert "Toy" in solera("paper", "summary", "--records", tmp_path).stdout


@pytest.mark.slow
def test_data_sets_are_named_in_eighty_columns(tmp_path):
    shown = solera("paper", "summary", "--records", tmp_path).stdout
    rows = [line for line in shown.splitlines() if line.startswith("  PFedRec ")]
    assert max(map(len, rows)) <= 80
    assert [line.split()[1] for line in rows[:2]] == ["MovieLens-100K", "MovieLens-1M"]
