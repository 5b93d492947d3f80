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
    shown = make_pages.transformer_boards(records, others).split("\n\n")
    assert shown[::2] == ["### beauty", "### toys"]
    # Published models know the item before the test item.
    assert shown[1].splitlines()[3:] == ["| *Theirs* (A paper) | | 0.5000 / 0.2500 | |"]
    assert shown[1].splitlines()[2].startswith("| **fedmf** | 0.5000 / 0.5000 |")
    assert shown[3].splitlines()[2].startswith("| mf, centralized | 1.0000 / 1.0000 |")
    with_brands = made("fedslist, attributes", [1.0, 1.0], dataset="beauty")
    apart = make_pages.transformer_boards([*records, with_brands], others).split("\n\n")
    assert "attributes" not in apart[1]
    assert apart[2] == "With categories and brands of items:"


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
    assert row.startswith("| toys | fedsasrec | sasrec | | -0.2500 [")
    assert make_pages.cost_of_federation(records[-1:]) == "There are no records yet."


def test_without_records_there_is_no_table(tmp_path):
    assert make_pages.read_published(tmp_path / "nothing.toml") == []
    assert make_pages.transformer_boards([], []) == "There are no records yet."
