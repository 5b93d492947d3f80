"""The page of transformers: models beside published figures, by data set and history."""

from __future__ import annotations

from benchmark import made

from programs import program

make_pages = program("docs/make_pages")

PUBLISHED = """
[[figure]]
model = "Theirs"
source = "A paper"
beauty = { hr = 0.5, ndcg = 0.25 }

[[figure]]
model = "Elsewhere"
source = "A paper"
yelp = { hr = 0.5, ndcg = 0.25 }
"""


def test_models_stand_beside_published_figures(tmp_path):
    (tmp_path / "published.toml").write_text(PUBLISHED)
    others = make_pages.read_published(tmp_path / "published.toml")
    records = [
        made("fedmf", [1.0, 11.0], dataset="beauty"),
        made("mf", [1.0, 1.0], dataset="toys", kind="baseline"),
        made("elsewhere", [1.0, 1.0], dataset="ml-100k"),
    ]
    assert make_pages.beside_published(records, others, "train").splitlines() == [
        "| HR@10 / NDCG@10 | beauty | toys |",
        "|---|---|---|",
        "| **fedmf** | 0.5000 / 0.5000 | not run |",
        "| mf, centralized | not run | 1.0000 / 1.0000 |",
    ]
    # Published models know the item before the test item, so they stand in this table alone.
    last = make_pages.beside_published(records, others, "train + validation").splitlines()[-1]
    assert last == "| *Theirs* (A paper) | 0.5000 / 0.2500 | |"


def test_what_federation_costs():
    """Of four users, the federated model loses one from rank 1 to a rank below ten: 3/4 − 1 = −1/4."""
    records = [
        made("fedsasrec", [1.0, 1.0, 1.0, 11.0], dataset="toys"),
        made("sasrec", [1.0, 1.0, 1.0, 1.0], dataset="toys", kind="baseline"),
        made("slist", [1.0, 1.0, 1.0, 1.0], dataset="toys", kind="baseline"),
        made("fedsasrec", [1.0, 1.0, 1.0, 1.0], dataset="beauty"),
    ]
    head, _, row = make_pages.cost_of_federation(records).splitlines()
    assert head == "| data set | federated | centralized | train | train + validation |"
    assert row.startswith("| toys | fedsasrec | sasrec | not run | -0.2500 [")
    assert make_pages.cost_of_federation(records[-1:]) == "There are no records yet."


def test_without_records_there_is_no_table(tmp_path):
    assert make_pages.read_published(tmp_path / "nothing.toml") == []
    assert make_pages.beside_published([], [], "train") == "There are no records yet."
    assert make_pages.transformer_boards([]) == "There are no records yet."
