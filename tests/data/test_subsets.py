"""Parts of data sets by rank, against ranks counted by hand."""

from __future__ import annotations

import os

import pytest

from solera.core.errors import DataError
from solera.data.datasets import Subset, load, subset_of
from solera.data.interactions import Interactions

NEEDS_DATA = pytest.mark.skipif(
    not os.environ.get("SOLERA_DATA"),
    reason="SOLERA_DATA is not set: it names the folder that holds the data sets",
)
# u1 has two rows, u2 and u3 three, u4 one; i1 is in four, i2 in three, i3 and i4 in one.
ROWS = ["u1 i1", "u1 i2", "u2 i1", "u2 i2", "u2 i3", "u3 i1", "u3 i2", "u3 i4", "u4 i1"]


@pytest.fixture
def data() -> Interactions:
    users, items = zip(*(row.split() for row in ROWS), strict=True)
    return Interactions.from_columns("toy", users, items)


def pairs(data: Interactions) -> list[str]:
    return [
        f"{data.user_map.id(u)} {data.item_map.id(i)}" for u, i in zip(data.users, data.items, strict=True)
    ]


@pytest.mark.parametrize(
    ("subset", "kept"),
    [
        (Subset("users", 1, 1), ["u2 i1", "u2 i2", "u2 i3"]),  # before u3, which has as many
        (Subset("users", 3, 4), ["u1 i1", "u1 i2", "u4 i1"]),
        (Subset("items", 2, 2), ["u1 i2", "u2 i2", "u3 i2"]),
        (Subset("items", 3, 4), ["u2 i3", "u3 i4"]),
    ],
)
def test_ranks_by_hand(data, subset, kept):
    part = subset.take(data)
    assert pairs(part) == kept
    assert part.n_users == len({pair.split()[0] for pair in kept}), "renumbered"
    assert part.n_items == len({pair.split()[1] for pair in kept})


def test_names():
    assert subset_of("ml-1m") == ("ml-1m", None)
    assert subset_of("ml-1m@users=2001-2500") == ("ml-1m", Subset("users", 2001, 2500))


@pytest.mark.parametrize("wrong", ["ml-1m@", "ml-1m@users=0-5", "ml-1m@users=9-5", "ml-1m@films=1-5"])
def test_a_wrong_part_says_how_to_write_one(wrong):
    with pytest.raises(DataError) as error:
        subset_of(wrong)
    assert "ml-1m@users=1-500" in error.value.hint


def test_more_than_there_are(data):
    with pytest.raises(DataError, match="4 users, not 5"):
        Subset("users", 1, 5).take(data)


@NEEDS_DATA
def test_fedraps_parts_have_its_sparsity():
    """Table 7 of the paper: 81.33 %, and 87.62 % of the 1000 most popular items."""
    for name, sparsity in (("ml-1m@users=1-500", 81.33), ("ml-1m@items=1-1000", 87.62)):
        part = load(name)
        assert part.name == name
        assert round(100 * (1 - len(part) / (part.n_users * part.n_items)), 2) == sparsity
