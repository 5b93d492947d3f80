"""Pages made of records: models beside published figures, and sentences about boards."""

from __future__ import annotations

import sys

from benchmark import made

from programs import program
from solera.study.compare import boards, compare

make_pages = program("docs/make_pages")
board_page = sys.modules["blocks.board"]

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
    assert head == "| data set | federated | centralized | test_train | test |"
    assert row.startswith("| toys | fedsasrec | sasrec | | -0.2500 [")
    assert make_pages.cost_of_federation(records[-1:]) == "There are no records yet."


def test_without_records_there_is_no_table(tmp_path):
    assert make_pages.read_published(tmp_path / "nothing.toml") == []
    assert make_pages.transformer_boards([], []) == "There are no records yet."


def ranks(hits: int) -> list[float]:
    """NDCG@10 of 1 (rank 1) or 0 (rank 11)."""
    return [1.0] * hits + [11.0] * (40 - hits)


COMPARED = [
    made("good", ranks(36)),
    made("poor", ranks(0)),
    made("popularity", ranks(12), kind="baseline"),
    made("mf", list(reversed(ranks(30))), kind="baseline"),
    made("ease", ranks(40), kind="baseline"),  # reads histories: an old record has the longer alone
]


def test_sentences_about_a_board():
    """They say no more than its records prove."""
    (board,) = boards(COMPARED)
    made_ = compare(board)
    assert board_page.statements(board, made_, "test_train") == [
        "Above popularity: `good`; centralized: `mf`.",
        "Level with popularity: no federated method.",
        "Below popularity: `poor`.",
        "`good`: level with `mf`.",
        "`poor`: below `mf`.",
        "Without test_train: `ease`.",
    ]
    assert "centralized: `ease`." in board_page.statements(board, made_, "test")[0]
    (alone,) = boards(COMPARED[:2])
    assert board_page.statements(alone, compare(alone), "test_train") == ["Popularity: not run."]
