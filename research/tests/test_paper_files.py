"""The files of published tables: complete, consistent, and every row can be run."""

from __future__ import annotations

import re
from itertools import chain

import pytest

from solera.core.errors import ConfigError
from solera.runs.presets import preset, presets, row_presets
from solera_research.papers import Published, find_table, papers
from solera_research.papers.cells import cells, counted

TABLES = [(paper, table) for paper in papers().values() for table in paper.table]
RUNS = [(paper, table) for paper, table in TABLES if table.kind == "runs"]
IDS = [f"{paper.key}/{table.id}" for paper, table in RUNS]
# Rows that other versions may lack. Everything else has to be built, or a name is misspelt.
PERHAPS = {"FedCIA", "w/ AU", "w/ DuoRec", "w/ FedDecorr"}
NUMBERED = {"pfedrec": (10, 6), "fedrap": (7, 8), "pfedclr": (9, 14), "fedem": (7, 10), "plgc": (4, 9)}


def test_every_table_of_a_paper_is_there():
    for key, (tables, figures) in NUMBERED.items():
        named = papers()[key].tables
        assert [name for name in named if name.startswith("table-")] == [
            f"table-{number}" for number in range(1, tables + 1)
        ]
        numbers = {int(name.split("-")[1]) for name in named if name.startswith("figure-")}
        numbers |= {int(n) for table in named.values() for n in re.findall(r"also Figure (\d+)", table.title)}
        assert numbers <= set(range(1, figures + 1))


@pytest.mark.parametrize(("paper", "table"), RUNS, ids=IDS)
def test_every_row_builds_a_run(paper, table):
    broken = {cell.row: cell.problem for cell in cells(paper, table, anywhere=True) if cell.dataset.name}
    wrong = {row: why for row, why in broken.items() if why and why[0] == "not implemented"}
    assert set(wrong) <= PERHAPS, wrong


@pytest.mark.parametrize("paper", papers().values(), ids=list(papers()))
def test_every_row_says_once_where_its_settings_come_from(paper):
    assert sorted(chain(*paper.settings.values())) == sorted(paper.rows.runs)
    named = set(chain(*(each.rows for each in paper.not_attempted)))
    assert named <= set(paper.rows.runs)
    assert set(chain(*(each.tables for each in paper.not_attempted))) <= set(paper.tables)


@pytest.mark.parametrize(("paper", "table"), RUNS, ids=IDS)
def test_shares_are_shares(paper, table):
    """A slipped column or a forgotten `percent` would not be."""
    for row in table.rows:
        for figures in table.published(row):
            for metric, one in zip(table.metrics, figures, strict=True):
                if one and "@" in metric:
                    assert 0 < one.value <= 1, (row, one)
            hr, ndcg = (dict(zip(table.metrics, figures, strict=True)).get(m) for m in ("hr@10", "ndcg@10"))
            if hr and ndcg:
                assert ndcg.value < hr.value, row


@pytest.mark.parametrize(
    ("name", "row", "column", "figures"),
    [
        ("pfedrec/table-1", "FedMF", 2, [(81.64, 0.48), (69.36, 0.42)]),
        ("pfedrec/table-2", "FedRecon w/ DualPer", 3, [(60.23, 0.16), (39.20, 0.12)]),
        ("pfedrec/table-6", "128", 1, [(70.67, 0.15), (43.74, 0.36)]),
        ("pfedrec/table-7", "0.5", 0, [(70.88, 0.97), (43.21, 0.69)]),
        ("pfedrec/table-8", "PFedRec", 0, [(19.19, 0.32), (10.57, 0.25)]),
        ("fedrap/table-3", "CentRAP", 3, [(48.54, 0.32)]),
        ("fedrap/table-4", "LightGCN", 0, [(98.7, 1.47)]),
        ("plgc/table-2", "GPFedRec w/ Ours", 3, [(46.72, None), (24.99, None)]),
    ],
)
def test_figures_in_percent_by_hand(name, row, column, figures):
    table = find_table(name)[1]
    wanted = [Published(value / 100, None if sd is None else sd / 100) for value, sd in figures]
    found = table.published(row)[column]
    assert [tuple(one) for one in found if one] == [pytest.approx(tuple(one)) for one in wanted]


@pytest.mark.parametrize(
    ("name", "row", "column", "figures"),
    [
        ("pfedclr/table-1", "GPFedRec", 0, (0.6866, 0.5578)),
        ("pfedclr/table-1", "FedRAP", 4, (0.6257, 0.5924)),
        ("pfedclr/table-2", "FedMF w/ AF", 3, (0.6947, 0.5024)),
        ("pfedclr/table-6", "FedRAP", 1, (0.2054, 96.9121)),
        ("pfedclr/table-9", "1", 4, (0.7155, 0.6509)),
        ("fedem/table-1", "FedCIA", 2, (0.9012, 0.7890)),
        ("fedem/table-3", "FedRAP w/ EM", 3, (0.6320, 0.5869)),
        ("fedem/table-6", "CoLR", 0, (0.6018, 0.4991)),
        ("fedem/table-7", "0.4", 1, (0.9947, 0.9342)),
        ("fedrap/table-7", "FedRAP", 5, (0.8260, 0.5207)),
        ("pfedrec/table-5", "FedRecon", 1, (118_624, 470, 123_892)),
    ],
)
def test_figures_by_hand(name, row, column, figures):
    assert tuple(one.value for one in find_table(name)[1].published(row)[column]) == figures


def test_figures_that_are_printed_twice_agree():
    """A row of the same run on the same data set; but for two that the papers print with two values."""
    known: dict[tuple[str, ...], set[float]] = {}
    for paper, table in RUNS:
        for row in table.rows:
            if not table.vary and row not in table.ratings and paper.key != "pfedrec":
                for column, figures in zip(table.columns, table.published(row), strict=True):
                    for metric, one in zip(table.metrics, figures, strict=True):
                        if one:
                            where = (paper.key, table.run_of(row), column, metric, table.ranking)
                            known.setdefault(where, set()).add(round(one.value, 6))
    twice = {where[:3] for where, values in known.items() if len(values) > 1}
    assert twice == {
        ("pfedclr", "FedMF", "ML-1M"),
        ("fedem", "FedNCF", "LastFM-2K"),
        ("fedrap", "FedRAP", "QB-article"),  # NDCG@10 0.2598 in Table 1, 0.2475 in Table 4
    }


def test_learning_rates_of_pfedrecs_baselines_are_those_of_its_table():
    paper, table = find_table("pfedrec/table-4")
    for row in table.rows:
        for column, (rate,) in zip(table.columns, table.published(row), strict=True):
            if row != "PFedRec":  # a preset of its own
                used = paper.rows.preset(row, paper.dataset(column)).options["learning_rate"]
                assert used == rate.value, (row, column)


@pytest.mark.slow
def test_data_sets_have_the_printed_numbers():
    for paper, table in TABLES:
        if table.kind == "data":
            for row in (row for row in table.rows if paper.dataset(row).name):
                for metric, one in zip(table.metrics, table.published(row)[0], strict=True):
                    bounds = table.ratings.get(row, {}).get(paper.dataset(row).name)
                    found = counted(paper.dataset(row), metric, bounds, None)
                    assert found in (one.value, None), (paper.key, row, metric)


def test_rows_are_presets():
    names = row_presets()
    assert len(names) == len(set(names))
    found = preset("paper:fedmf@pfedrec/lastfm-2k")
    assert (found.method, found.settings["rounds"], found.protocol) == ("fedmf", 100, "paper")
    assert found.options["learning_rate"] == 0.05
    assert found.config(seed=3).seed == 3
    video = preset("paper:ncf@fedrap/amazon-video").config()
    assert video.min_interactions == 10
    assert preset("paper:pfedrec/ml-100k") is presets()["paper:pfedrec/ml-100k"], "older names hold"
    assert preset("paper:pfedrec@pfedrec/ml-100k").config() == preset("paper:pfedrec/ml-100k").config()


def test_wrong_names_suggest_the_nearest():
    with pytest.raises(ConfigError) as error:
        preset("paper:fedfm@pfedrec/ml-100k")
    assert "paper:fedmf@pfedrec/ml-100k" in error.value.hint
    for wrong, near in (
        ("pfedrek/table-1", "pfedrec"),
        ("pfedrec/tabel-1", "table-1"),
        ("plgc", "plgc/table-1"),
    ):
        with pytest.raises(ConfigError) as error:
            find_table(wrong)
        assert near in error.value.hint


def test_what_differs_is_written_in_sentences():
    assert list(papers()) == ["pfedrec", "fedrap", "pfedclr", "fedem", "plgc"]
    for text in chain((paper.about for paper in papers().values()), (t.about for _, t in TABLES if t.about)):
        assert text.strip().endswith("."), text
