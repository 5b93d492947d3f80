from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solera.core.errors import ConfigError, DataError
from solera.data.datasets import load
from solera.data.interactions import Interactions, history
from solera.data.ragged import Ragged
from solera.evaluate import PROTOCOLS, split

Row = tuple[Any, ...]  # user, item, and perhaps a time


def table(*rows: Row) -> Interactions:
    times = np.array([row[2] for row in rows]) if len(rows[0]) == 3 else None
    return Interactions.from_columns("toy", [row[0] for row in rows], [row[1] for row in rows], times)


def named(data: Interactions, part: Ragged) -> dict[str, str]:
    """Every user's items of a part as one string of their ids."""
    return {data.user_map.id(u): "".join(data.item_map.ids[part.row(u)]) for u in range(len(part))}


TIES = table(("a", "x", 5), ("a", "y", 9), ("a", "z", 9), ("a", "w", 9))
REPEATS = table(("a", "x", 1), ("a", "y", 2), ("a", "z", 3), ("a", "x", 4))


def test_strict_ties_keep_file_order() -> None:
    """Equal times: the later row in the file is the later one. x y z w → train x y, validation z, test w."""
    got = split(TIES, "strict")
    assert named(TIES, got.train) == {"a": "xy"}
    assert named(TIES, got.validation) == {"a": "z"}
    assert named(TIES, got.test) == {"a": "w"}
    assert named(TIES, got.excluded) == {"a": "xy"}
    assert not got.leaky


def test_paper_ties_reverse_file_order_and_leak() -> None:
    """Of equal times the EARLIER row is later: x w z y → train x w, validation z, test y; all excluded."""
    got = split(TIES, "paper")
    assert named(TIES, got.train) == {"a": "xw"}
    assert named(TIES, got.validation) == {"a": "z"}
    assert named(TIES, got.test) == {"a": "y"}
    assert named(TIES, got.excluded) == {"a": "wxyz"}
    assert got.leaky


def test_repeats() -> None:
    """Rows x y z x. strict sees x y z; paper sees all four, with the test item in train."""
    strict, paper = split(REPEATS, "strict"), split(REPEATS, "paper")
    assert [named(REPEATS, p)["a"] for p in (strict.train, strict.validation, strict.test)] == ["x", "y", "z"]
    assert [named(REPEATS, p)["a"] for p in (paper.train, paper.validation, paper.test)] == ["xy", "z", "x"]
    assert named(REPEATS, paper.excluded) == {"a": "xyz"}


UNTIMED = table(("b", "z"), ("a", "x"), ("b", "x"), ("a", "y"), ("b", "y"), ("a", "z"), ("b", "x"))


def test_strict_without_times_holds_out_the_last_new_row_of_the_file() -> None:
    got = split(UNTIMED, "strict")
    assert named(UNTIMED, got.test) == {"a": "z", "b": "y"}
    assert named(UNTIMED, got.validation) == {"a": "y", "b": "x"}
    assert named(UNTIMED, got.train) == {"a": "x", "b": "z"}


def test_paper_without_times_takes_the_first_appearance_of_an_item_as_its_time() -> None:
    """Items appear in the order z x y. So a has z x y, and b, who has x twice, z x x y."""
    got = split(UNTIMED, "paper")
    assert named(UNTIMED, got.test) == {"a": "y", "b": "y"}
    assert named(UNTIMED, got.validation) == {"a": "x", "b": "x"}
    assert named(UNTIMED, got.train) == {"a": "z", "b": "zx"}


def test_paper_takes_the_first_appearance_in_the_whole_file() -> None:
    """The user c is left out for having one row, and still c's row of y comes first."""
    data = table(("c", "y"), ("a", "x"), ("a", "y"), ("a", "z")).min_interactions(3)
    assert named(data, split(data, "paper").test) == {"a": "z"}
    assert named(data, split(data, "paper").validation) == {"a": "x"}


@pytest.mark.parametrize(
    ("name", "file", "least"), [("filmtrust", "ratings.txt", 10), ("douban-book", "ratings.dat", 5)]
)
def test_paper_holds_out_what_the_public_code_does_without_times(name: str, file: str, least: int) -> None:
    """Items by first appearance, then each user's latest, computed from the publisher's file line by line."""
    path = Path(os.environ.get("SOLERA_DATA", "")) / name / file
    if not path.is_file():
        pytest.skip(f"{name} is not on this machine")
    data = load(name)
    lines = [line.split()[:2] for line in path.read_text(encoding="utf-8").splitlines()]
    place: dict[str, int] = {}
    for _, item in lines:
        place.setdefault(item, len(place))
    rows: dict[str, list[str]] = {}
    for user, item in lines:
        rows.setdefault(user, []).append(item)
    expected = {
        user: max(items, key=place.__getitem__) for user, items in rows.items() if len(items) >= least
    }
    test = split(data, "paper").test
    found = {data.user_map.id(u): data.item_map.id(int(test.row(u)[0])) for u in range(len(test))}
    assert found == expected


def test_paper_holds_out_what_pandas_ranks_first_and_second() -> None:
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame({"user": np.repeat(np.arange(40), 12), "time": rng.integers(0, 6, 480)})
    frame["item"] = np.arange(480)  # every row its own item: which row was taken is then plain
    frame = frame.sample(frac=1, random_state=0)
    rank = frame.groupby("user")["time"].rank(method="first", ascending=False)
    data = Interactions.from_columns(
        "toy",
        frame["user"].astype(str).tolist(),
        frame["item"].astype(str).tolist(),
        frame["time"].to_numpy(),
    )
    got = split(data, "paper")
    for place, part in ((1, got.test), (2, got.validation)):
        wanted = frame[rank == place].sort_values("user")["item"]
        assert data.item_map.ids[part.values].astype(int).tolist() == wanted.tolist()


def test_global_time() -> None:
    """Twenty rows at times 0…19: validation begins at time 16, test at 18.

    a has items 0…7 and b items 1…8 in training. At 16 a takes 8 (known: validation), at 17 the new item 9
    (dropped: nobody could recommend it), at 18 b takes 0 (test), at 19 the new user c takes 0 (dropped).
    """
    rows: list[Row] = [row for i in range(8) for row in (("a", str(i), 2 * i), ("b", str(i + 1), 2 * i + 1))]
    data = table(*rows, ("a", "8", 16), ("a", "9", 17), ("b", "0", 18), ("c", "0", 19))
    got = split(data, "global-time")
    assert named(data, got.train) == {"a": "01234567", "b": "12345678", "c": ""}
    assert named(data, got.validation) == {"a": "8", "b": "", "c": ""}
    assert named(data, got.test) == {"a": "", "b": "0", "c": ""}
    assert named(data, got.excluded) == named(data, got.train)


def test_global_time_needs_times() -> None:
    with pytest.raises(DataError, match="no times") as caught:
        split(table(("a", "x"), ("a", "y"), ("a", "z")), "global-time")
    assert "strict" in caught.value.hint


def test_unknown_protocol_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'strict'"):
        split(TIES, "strikt")


@pytest.mark.parametrize("protocol", ["strict", "paper"])
def test_too_few_rows_names_the_user(protocol: str) -> None:
    with pytest.raises(DataError, match=r"user 'b' .* has 2 interactions") as caught:
        split(table(("a", "x"), ("a", "y"), ("a", "z"), ("b", "x"), ("b", "y")), protocol)
    assert caught.value.hint.startswith("raise --min-interactions to 3 or more")


def test_too_few_distinct_items_train_and_are_not_evaluated() -> None:
    data = table(("a", "x"), ("a", "y"), ("a", "z"), ("b", "x"), ("b", "x"), ("b", "y"))
    got = split(data, "strict")
    assert named(data, got.train) == {"a": "x", "b": "xy"}
    assert named(data, got.test) == {"a": "z", "b": ""}


def test_nobody_to_evaluate_is_an_error() -> None:
    with pytest.raises(DataError, match="no user of"):
        split(table(("a", "x"), ("a", "x"), ("a", "y")), "strict")


def test_history_knows_validation_only_at_test_time() -> None:
    got = split(TIES, "strict")
    assert named(TIES, history(got, "validation")) == {"a": "xy"}
    assert named(TIES, history(got, "test")) == {"a": "xyz"}


def test_descriptions() -> None:
    assert {name for name, protocol in PROTOCOLS.items() if protocol.leaky} == {"paper"}
    chosen_on = {name: (each.select_on, each.select_metric) for name, each in PROTOCOLS.items()}
    assert chosen_on["strict"] == chosen_on["global-time"] == ("full", "ndcg@10")
    assert chosen_on["paper"] == ("sampled99", "hr@10")


histories = st.lists(st.lists(st.integers(0, 6), min_size=3, max_size=12), min_size=1, max_size=6)


@given(histories, st.sampled_from(["strict", "global-time"]), st.randoms(use_true_random=False))
def test_honest_protocols_never_hold_out_a_training_item(
    lists: list[list[int]], protocol: str, random: object
) -> None:
    data = _timed(lists, random)
    try:
        got = split(data, protocol)
    except DataError:
        return  # nothing to hold out
    for u in range(data.n_users):
        parts = [set(part.row(u).tolist()) for part in (got.train, got.validation, got.test)]
        assert sum(map(len, parts)) == len(set.union(*parts))
        assert got.excluded.row(u).tolist() == sorted(parts[0])


@given(histories, st.randoms(use_true_random=False))
def test_paper_keeps_every_row_and_excludes_everything(lists: list[list[int]], random: object) -> None:
    data = _timed(lists, random)
    got = split(data, "paper")
    for u in range(data.n_users):
        parts = [item for part in (got.train, got.validation, got.test) for item in part.row(u).tolist()]
        assert sorted(parts) == sorted(data.by_user.row(u).tolist())
        assert got.excluded.row(u).tolist() == sorted(set(parts))


def _timed(lists: list[list[int]], random: object) -> Interactions:
    draw: Callable[[int, int], int] = random.randint  # type: ignore[attr-defined]
    return table(*[(str(u), str(i), draw(0, 5)) for u, each in enumerate(lists) for i in each])


def _of_many_items() -> Interactions:
    draw = np.random.default_rng(5)
    rows = [(f"u{user}", f"i{item}") for user in range(60) for item in draw.permutation(40)[:8]]
    return table(*((user, item, time) for time, (user, item) in enumerate(rows)))


def test_cold_items_are_in_no_training_row_and_alone_held_out() -> None:
    data = _of_many_items()
    got, strict = split(data, "cold-items"), split(data, "strict")
    cold = np.setdiff1d(np.arange(40), got.train.values)
    assert len(cold) == 4  # a tenth
    assert set(got.test.values) | set(got.validation.values) <= set(cold)
    for user in range(data.n_users):
        last = strict.test.row(user)
        assert got.test.row(user).tolist() == [item for item in last if item in cold]
        known = history(strict, "test").row(user)
        assert got.train.row(user).tolist() == [item for item in known if item not in cold]


def test_cold_items_are_the_same_in_every_run() -> None:
    data = _of_many_items()
    one, other = split(data, "cold-items"), split(data, "cold-items")
    np.testing.assert_array_equal(one.test.values, other.test.values)
    np.testing.assert_array_equal(one.train.values, other.train.values)
