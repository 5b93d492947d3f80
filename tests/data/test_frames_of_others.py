"""Tables as people have them: gaps in ids, mixed types, times in any order."""

from __future__ import annotations

import polars as pl
import pytest

import solera
from solera.core.errors import SoleraError


def loaded(**columns):
    pandas = pytest.importorskip("pandas")
    return solera.load(pandas.DataFrame(columns), min_interactions=0)


@pytest.mark.parametrize("users", [["a", None, "b"], ["a", float("nan"), "b"], [1, float("nan"), 2]])
def test_a_missing_id_is_an_error_that_names_its_row(users):
    with pytest.raises(SoleraError, match=r"row 2: the id in column 'user' is empty"):
        loaded(user=users, item=["x", "y", "z"])


def test_ids_of_mixed_types_are_refused():
    with pytest.raises(SoleraError, match="the column 'item' of the table mixes int and str") as wrong:
        loaded(user=["a", "a", "b"], item=[1, "1", 2])
    assert "text" in wrong.value.hint


def test_other_columns_are_not_looked_at():
    assert len(loaded(user=["a", "a"], item=["x", "y"], note=["text", 4])) == 2


def test_two_columns_with_one_name_are_refused():
    pandas = pytest.importorskip("pandas")
    with pytest.raises(SoleraError, match="two columns with the same name"):
        solera.load(pandas.DataFrame([[1, 2, 3]], columns=["user", "item", "item"]))


def test_whole_numbers_as_floats_are_whole_numbers():
    data = loaded(user=[1.0, 1.0, 2.0], item=["x", "y", "x"])
    assert data.user_map.ids.tolist() == ["1", "2"]


def test_rows_are_put_in_the_order_of_their_times():
    data = loaded(user=["a", "a", "a"], item=["late", "early", "middle"], time=[30, 10, 20])
    assert data.item_map.ids[data.by_user.row(0)].tolist() == ["early", "middle", "late"]


def test_a_missing_time_is_an_error():
    with pytest.raises(SoleraError, match="row 2: the time"):
        loaded(user=["a", "a"], item=["x", "y"], time=[1.0, float("nan")])


def test_data_sets_of_rectools_and_lenskit_bring_their_table():
    """Stand-ins with the one method that is used; tests/api/test_adapters.py has the libraries."""
    table = pl.DataFrame({"user_id": [1, 1, 2], "item_id": ["x", "y", "x"], "datetime": [1, 2, 3]})
    rectools = type("Dataset", (), {"get_raw_interactions": lambda self: table})()
    lenskit = type("Dataset", (), {"interaction_table": lambda self, **how: table})()
    for source in (rectools, lenskit):
        data = solera.load(source, min_interactions=0)
        assert (data.n_users, data.n_items, len(data)) == (2, 2, 3)
        assert data.times is not None
