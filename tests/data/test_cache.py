"""Large files are read by columns and converted once; what is loaded is the same as without."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from solera.core.errors import DataError
from solera.data import datasets, files, table
from solera.data.datasets import load
from solera.data.interactions import Interactions

ROWS = [(f"u{(7 * n) % 11}", str((5 * n) % 13), 1000 - n % 17) for n in range(120)]


@pytest.fixture(autouse=True)
def everything_is_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda _: tmp_path / "cache")
    monkeypatch.setattr(table, "LARGE", 0)
    monkeypatch.setattr(datasets, "LARGE", 0)


def write(path: Path, end: str = "\n", mark: str = "") -> Path:
    lines = ["user,item,time", *(f"{u},{i},{t}" for u, i, t in ROWS)]
    path.write_bytes((mark + end.join(lines) + end).encode())
    return path


def same(one: Interactions, other: Interactions) -> bool:
    assert one.times is not None
    assert other.times is not None
    return (
        np.array_equal(one.users, other.users)
        and np.array_equal(one.items, other.items)
        and np.array_equal(one.times, other.times)
        and one.user_map.ids.tolist() == other.user_map.ids.tolist()
        and one.item_map.ids.tolist() == other.item_map.ids.tolist()
    )


def slow(path: Path, monkeypatch: pytest.MonkeyPatch) -> Interactions:
    """The file, read line by line and not converted."""
    with monkeypatch.context() as patch:
        patch.setattr(table, "LARGE", 2**40)
        patch.setattr(datasets, "LARGE", 2**40)
        return load(path)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_by_columns_or_by_lines_is_the_same(tmp_path, monkeypatch, end, mark):
    path = write(tmp_path / "rows.csv", end, mark)
    assert table.text_columns(path, ",") is not None
    assert same(load(path), slow(path, monkeypatch))
    pl.read_csv(path).write_parquet(tmp_path / "rows.parquet")
    assert same(load(tmp_path / "rows.parquet"), slow(path, monkeypatch))


def test_ids_that_only_look_like_numbers_stay_apart(tmp_path, monkeypatch):
    """1, 01 and +1 are three users; 10 comes after 9 only if all are numbers."""
    path = tmp_path / "rows.csv"
    path.write_text(
        "user,item\n" + "".join(f"{u},{i}\n" for u in ("1", "01", "+1", "10", "9") for i in range(6))
    )
    assert load(path).user_map.ids.tolist() == ["+1", "01", "1", "10", "9"]
    path.write_text("user,item\n" + "".join(f"{u},{i}\n" for u in ("1", "10", "9") for i in range(6)))
    assert load(path).user_map.ids.tolist() == ["1", "9", "10"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("user,item\nu1,1\nu2\nu3,1,2\n", "line 3"),
        ("user,item\nu1,1\n\nu2,2\n", "line 3"),
        ("user,item\nu1,1\n,2\n", "row 3: the id"),
        ("user,item,time\nu1,1,5\nu2,2,x\n", "row 3"),
    ],
)
def test_an_error_names_its_place(tmp_path, text, words):
    (tmp_path / "rows.csv").write_text(text)
    with pytest.raises(DataError, match=words):
        load(tmp_path / "rows.csv", min_interactions=0)


def test_quotes_are_read_line_by_line(tmp_path):
    (tmp_path / "rows.csv").write_text("user,item\n" + 'u1,"a,b"\nu1,c\n' * 3)
    assert load(tmp_path / "rows.csv").item_map.ids.tolist() == ["a,b", "c"]


def test_a_file_is_read_once(tmp_path, monkeypatch):
    path = write(tmp_path / "rows.csv")
    first = load(path)

    def forbidden(*_: object) -> Interactions:
        raise AssertionError("read again")

    monkeypatch.setattr(datasets, "read_own", forbidden)
    again = load(path)
    assert same(first, again)
    assert again.origin == first.origin
    assert isinstance(again.items, np.memmap)
    with pytest.raises(AssertionError, match="read again"):
        load(path, min_interactions=11)


def test_a_changed_file_is_read_again(tmp_path):
    path = write(tmp_path / "rows.csv")
    before = len(load(path))
    path.write_text(path.read_text() + "u0,99,5\n")
    assert len(load(path)) == before + 1


def test_a_damaged_copy_is_made_again(tmp_path):
    path = write(tmp_path / "rows.csv")
    before = load(path)
    before = replace(before, **{name: getattr(before, name).copy() for name in ("users", "items", "times")})
    (items,) = files.converted_dir().glob("*/items.npy")
    items.write_bytes(items.read_bytes()[:20])
    assert same(load(path), before)
    (about,) = files.converted_dir().glob("*/about.json")
    about.write_text("{")
    assert same(load(path), before)


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda _: tmp_path / "file" / "cache")
    assert len(load(write(tmp_path / "rows.csv"))) == len(ROWS)


def test_titles_and_clocks_are_kept(tmp_path):
    path = write(tmp_path / "rows.csv")
    made = replace(load(path), titles=tuple(f"film {n}" for n in range(13)), one_clock=False)
    found = files.converted([path], {"a": 1}, lambda: made)
    assert (found.titles, found.one_clock, found.name) == (made.titles, False, "rows")


def test_clear_deletes_the_copies(tmp_path):
    load(write(tmp_path / "rows.csv"))
    assert files.clear() > 1000
    assert not files.converted_dir().exists()


def test_small_files_are_not_copied(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets, "LARGE", 2**40)
    load(write(tmp_path / "rows.csv"))
    assert not files.converted_dir().exists()
