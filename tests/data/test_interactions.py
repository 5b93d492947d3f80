"""Interactions, IdMap and Ragged against plain Python on small random inputs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solera.core.errors import DataError
from solera.data.interactions import IdMap, Interactions
from solera.data.ragged import Ragged

IDS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=4)
ROWS = st.lists(st.tuples(IDS, IDS, st.integers(-(10**13), 10**13)), min_size=1, max_size=30)
LISTS = st.lists(st.lists(st.integers(0, 9), max_size=5), max_size=6)


def build(rows: list[tuple[str, str, int]], *, timed: bool = True) -> Interactions:
    users, items, times = (list(column) for column in zip(*rows, strict=True))
    return Interactions.from_columns("t", users, items, np.array(times, dtype=np.int64) if timed else None)


def named(data: Interactions) -> list[tuple[str, str]]:
    pairs = zip(data.users.tolist(), data.items.tolist(), strict=True)
    return [(data.user_map.id(u), data.item_map.id(i)) for u, i in pairs]


def lists(ragged: Ragged) -> list[list[int]]:
    return [ragged.row(i).tolist() for i in range(len(ragged))]


@given(ROWS, st.booleans())
def test_every_user_keeps_their_rows_in_time_order(rows: list[tuple[str, str, int]], timed: bool) -> None:
    data = build(rows, timed=timed)
    assert (np.diff(data.users) >= 0).all()
    assert (data.times is not None) == timed
    for user in {u for u, _, _ in rows}:
        mine = [(t, i) for u, i, t in rows if u == user]
        if timed:
            mine.sort(key=lambda row: row[0])  # stable: equal times keep the order of the file
        index = data.user_map.index(user)
        assert [data.item_map.id(i) for i in data.by_user.row(index)] == [i for _, i in mine]


@given(ROWS)
def test_ids_map_both_ways_without_a_gap(rows: list[tuple[str, str, int]]) -> None:
    data = build(rows)
    assert set(data.item_map.ids.tolist()) == {i for _, i, _ in rows}
    assert all(data.item_map.index(data.item_map.id(k)) == k for k in range(data.n_items))
    assert set(data.items.tolist()) == set(range(data.n_items))


@given(ROWS)
def test_distinct_keeps_the_first_row_of_every_pair(rows: list[tuple[str, str, int]]) -> None:
    data = build(rows)
    assert named(data.distinct()) == list(dict.fromkeys(named(data)))


@given(ROWS, st.integers(0, 4))
def test_min_interactions_drops_whole_users_and_unused_items(
    rows: list[tuple[str, str, int]], least: int
) -> None:
    data = build(rows)
    counts = {u: sum(v == u for v, _, _ in rows) for u, _, _ in rows}
    if max(counts.values()) < least:
        with pytest.raises(DataError, match=f"has {least} or more"):
            data.min_interactions(least)
        return
    kept = data.min_interactions(least)
    assert named(kept) == [(u, i) for u, i in named(data) if counts[u] >= least]
    assert set(kept.items.tolist()) == set(range(kept.n_items))
    assert set(kept.users.tolist()) == set(range(kept.n_users))


def test_whole_numbers_are_numbered_as_numbers() -> None:
    data = Interactions.from_columns("t", ["10", "9", "09", "1"], ["b", "a", "10", "9"])
    assert data.user_map.ids.tolist() == ["1", "09", "9", "10"]
    assert data.item_map.ids.tolist() == ["10", "9", "a", "b"]  # one is no number: all are text


@pytest.mark.parametrize("odd", ["²", "١", "123456789012345678901234567890"])
def test_ids_that_only_look_like_machine_numbers(odd: str) -> None:
    data = Interactions.from_columns("t", [odd, "7"], ["1", "2"])
    assert set(data.user_map.ids.tolist()) == {odd, "7"}
    if odd.isascii():
        assert data.user_map.ids.tolist() == ["7", odd]


def test_titles_follow_their_items_through_a_filter() -> None:
    data = Interactions.from_columns(
        "t", ["1", "1", "2"], ["20", "3", "4"], titles={"20": "Twenty", "4": "Four"}
    )
    kept = data.min_interactions(2)
    assert [kept.title(i) for i in range(kept.n_items)] == ["3", "Twenty"]  # no title: the id


def test_no_rows_and_unknown_ids_are_errors() -> None:
    with pytest.raises(DataError, match="no interactions"):
        Interactions.from_columns("t", [], [])
    with pytest.raises(DataError, match="unknown user 'x'"):
        IdMap(["1", "2"]).index("x", "user")


@given(LISTS)
def test_ragged_is_lists_of_lists(rows: list[list[int]]) -> None:
    ragged = Ragged.from_lists(rows)
    assert lists(ragged) == rows
    assert ragged.lengths.tolist() == [len(row) for row in rows]
    assert ragged.rows.tolist() == [r for r, row in enumerate(rows) for _ in row]
    assert lists(ragged.sorted_unique()) == [sorted(set(row)) for row in rows]
    again = Ragged.from_pairs(ragged.rows, ragged.values, len(rows))
    assert lists(again) == rows
    assert lists(ragged.concat(ragged)) == [row + row for row in rows]


@given(LISTS, st.data())
def test_ragged_take_is_indexing(rows: list[list[int]], data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=8)) if rows else []
    taken = Ragged.from_lists(rows).take(np.array(chosen, dtype=np.int64))
    assert lists(taken) == [rows[i] for i in chosen]
