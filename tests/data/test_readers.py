"""The formats, and what a reader says of a file that is not well formed."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from solera.core.errors import DataError
from solera.data.readers import delimited, read_baskets, read_lists, read_own, titles

RATED = ("user", "item", "rating", "time")


def write(folder: Path, name: str, text: str, encoding: str = "utf-8") -> Path:
    path = folder / name
    path.write_bytes(text.encode(encoding))
    return path


def pairs(users: pl.Series, items: pl.Series) -> list[tuple[str, str]]:
    return list(zip(map(str, users.to_list()), map(str, items.to_list()), strict=True))


@pytest.mark.parametrize("separator", [",", "\t", "::", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("last", ["", "END", "ENDEND"])
def test_delimited_takes_any_separator_line_end_and_mark(
    tmp_path: Path, separator: str, end: str, mark: str, last: str
) -> None:
    lines = [separator.join(fields) for fields in (["1", "10", "5", "900"], ["2", "x y", "3.5", "-7"])]
    path = write(tmp_path, "f", mark + end.join(lines) + last.replace("END", end))
    rows = delimited(separator, RATED)([path])
    assert pairs(rows.users, rows.items) == [("1", "10"), ("2", "x y")]
    assert rows.times is not None
    assert rows.times.tolist() == [900, -7]


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("1,2,3,4\n1,2,3\n", 2, "4 fields were expected (user, item, rating, time), 3 found: '1,2,3'"),
        ("1,2,3,4\n1,2,3,4,5\n", 2, "5 found"),
        ("1,2,3,4\n\n1,2,3,4\n", 2, "1 found"),
        ("1,2,3,4\r\n1,2,3,4\r\n ,2,3,4\r\n", 3, "the id in column 'user' is empty"),
        ("1,,3,4\n", 1, "the id in column 'item' is empty"),
        ("1,2,3,4\n1,2,3,noon\n", 2, "the time 'noon' is not a number"),
        ("1,2,3,4\n1,2,3,\n", 2, "the time '' is not a number"),
        ("1,2,3,nan\n", 1, "the time 'nan' is not a number"),
        ("1,2,3,4\n" + "x" * 500 + "\n", 2, "x" * 57 + "…"),
    ],
)
def test_a_malformed_line_is_named(tmp_path: Path, text: str, line: int, problem: str) -> None:
    path = write(tmp_path, "ratings.dat", text)
    with pytest.raises(DataError) as caught:
        delimited(",", RATED)([path])
    assert f"{path}, line {line}: " in caught.value.message
    assert problem in caught.value.message
    assert caught.value.hint
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("text", ["", "\n\n", "\ufeff", " \r\n"])
def test_an_empty_file_is_an_error(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, "f", text)
    for read in (delimited(",", RATED), read_lists):
        with pytest.raises(DataError, match="is empty"):
            read([path])


def test_bytes_that_are_not_text_are_named_by_line(tmp_path: Path) -> None:
    path = write(tmp_path, "f.csv", "user,item\n1,2\n1,é\n", "latin-1")
    with pytest.raises(DataError, match=r"f\.csv, line 3: not UTF-8"):
        read_own(path)


def test_hetrec_headers_are_read_by_name(tmp_path: Path) -> None:
    path = write(tmp_path, "f", "userID\tartistID\ttagID\ttimestamp\n2\t52\t13\t1238536800000\n")
    rows = delimited("\t")([path])
    assert pairs(rows.users, rows.items) == [("2", "52")]
    assert rows.times is not None
    assert rows.times.tolist() == [1238536800000]
    bad = write(tmp_path, "g", "userID\tweight\n2\t52\n")
    with pytest.raises(DataError, match="line 1: the header names no item column"):
        delimited("\t")([bad])


def test_lists_are_merged_in_the_order_given(tmp_path: Path) -> None:
    train = write(tmp_path, "train.txt", "0 5 4\n1 7\n")
    test = write(tmp_path, "test.txt", "0 9 \n1 \n2  3\t8\n")
    rows = read_lists([train, test])
    expected = [("0", "5"), ("0", "4"), ("1", "7"), ("0", "9"), ("2", "3"), ("2", "8")]
    assert pairs(rows.users, rows.items) == expected
    assert rows.times is None
    gap = write(tmp_path, "gap.txt", "0 5\n\n1 7\n")
    with pytest.raises(DataError, match=r"gap\.txt, line 2: the line is empty"):
        read_lists([train, gap])


def test_a_basket_s_number_is_its_time(tmp_path: Path) -> None:
    rows = read_baskets([write(tmp_path, "b.json", '{"1": [[3, 4], [3]], "7": [["x"]]}')])
    assert pairs(rows.users, rows.items) == [("1", "3"), ("1", "4"), ("1", "3"), ("7", "x")]
    assert rows.times is not None
    assert rows.times.tolist() == [0, 0, 1, 0]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"1": [[3]],\n "2": [[3]', "line 2: not JSON"),
        ("[1, 2]", "line 1: not an object"),
        ("{}", "line 1: not an object"),
        ('{"1": [3]}', "user '1' are not lists"),
        ('{"1": [["3"]], "2": ["34"]}', "user '2' are not lists"),
        ('{"1": [[[3]]]}', "user '1' are not lists"),
        ('{"1": [[""]]}', "user '1' are not lists"),
    ],
)
def test_malformed_baskets_are_named(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        read_baskets([write(tmp_path, "b.json", text)])


def test_titles_in_latin_1_and_with_the_year_apart(tmp_path: Path) -> None:
    movies = write(
        tmp_path, "movies.dat", "1::Misérables, Les (1995)::Drama\n2::Heat (1995)::Crime\n", "latin-1"
    )
    assert titles("::", encoding="latin-1")(movies) == {"1": "Misérables, Les (1995)", "2": "Heat (1995)"}
    items = write(
        tmp_path, "items.tsv", "id\ttitle\tyear\n1\tToy Story\t1995\n2\tunknown\tunknown\n3\tBare\n"
    )
    read = titles("\t", header=True, year=2)
    assert read(items) == {"1": "Toy Story (1995)", "2": "unknown", "3": "Bare"}
    with pytest.raises(DataError, match="line 3: an id and a title"):
        read(write(tmp_path, "bad.tsv", "id\ttitle\tyear\n1\tToy Story\t1995\n2\n"))


def test_own_csv_with_quotes_knows_its_lines(tmp_path: Path) -> None:
    text = 'userId,movieId,title,timestamp\n1,2,"Good, Bad\nand Ugly",9\n1,3,"A ""B""",8\n'
    rows = read_own(write(tmp_path, "my.csv", text))
    assert pairs(rows.users, rows.items) == [("1", "2"), ("1", "3")]
    assert rows.titles == {"2": "Good, Bad\nand Ugly", "3": 'A "B"'}
    assert rows.times is not None
    assert rows.times.tolist() == [9, 8]
    with pytest.raises(DataError, match=r"line 5: 4 fields were expected .* 2 found: '1,4'"):
        read_own(write(tmp_path, "bad.csv", text + "1,4\n"))
    with pytest.raises(DataError, match=r"line 5: unexpected end of data"):
        read_own(write(tmp_path, "open.csv", text + '1,4,"never closed,7\n1,5,x,8\n'))


@pytest.mark.parametrize(
    "header", ["user\titem\ttime", "user_id\titem_id\tts", "userID\titemId\tTimestamp", "USER\tmovieId\tdate"]
)
def test_own_columns_are_found_by_their_usual_names(tmp_path: Path, header: str) -> None:
    rows = read_own(write(tmp_path, "my.tsv", f"{header}\n1\t2\t3\n"))
    assert pairs(rows.users, rows.items) == [("1", "2")]
    assert rows.times is not None


def test_own_columns_can_be_named(tmp_path: Path) -> None:
    path = write(tmp_path, "my.csv", "who,what,when,called\na,b,5,B\n")
    columns = {"user": "who", "item": "what", "time": "when", "title": "called"}
    rows = read_own(path, columns)
    assert pairs(rows.users, rows.items) == [("a", "b")]
    assert rows.titles == {"b": "B"}
    with pytest.raises(DataError) as caught:
        read_own(path)
    assert "who, what, when, called" in caught.value.message
    assert "--columns user=…,item=…,time=…" in caught.value.hint
    with pytest.raises(DataError, match=r"no column 'caled' for the title.*did you mean 'called'"):
        read_own(path, {**columns, "title": "caled"})
    with pytest.raises(DataError, match="unknown key 'usr'"):
        read_own(path, {"usr": "who"})


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (["978300760", "978300761"], [978300760, 978300761]),
        (["978300760000", "978300761000"], [978300760000, 978300761000]),
        (["9.0", "8e2"], [9, 800]),
        (["1.25", "1.5"], [1250, 1500]),
        (["1970-01-02", "1970-01-01T00:00:01Z"], [86_400_000, 1000]),
        (["1970-01-01 01:00:00+01:00", "1969-12-31T23:59:59.5"], [0, -500]),
    ],
)
def test_own_times(tmp_path: Path, times: list[str], expected: list[int]) -> None:
    rows = read_own(write(tmp_path, "my.csv", "user,item,time\n" + "".join(f"1,2,{t}\n" for t in times)))
    assert rows.times is not None
    assert rows.times.tolist() == expected


def test_a_date_among_dates_that_is_none_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, "my.csv", "user,item,time\n1,2,2020-01-01\n1,2,2020-13-01\n")
    with pytest.raises(DataError, match="line 3: the time '2020-13-01' is not a date"):
        read_own(path)


def test_own_parquet(tmp_path: Path) -> None:
    path = tmp_path / "my.parquet"
    dates = pl.Series(["2020-01-01", "2020-01-02"]).str.to_date()
    pl.DataFrame({"user": [1, 2], "item": ["a", "b"], "date": dates}).write_parquet(path)
    rows = read_own(path)
    assert pairs(rows.users, rows.items) == [("1", "a"), ("2", "b")]
    assert rows.times is not None
    assert rows.times.tolist() == [1577836800000, 1577923200000]
    pl.DataFrame({"user": [1, None], "item": ["a", "b"]}).write_parquet(path)
    with pytest.raises(DataError, match="row 2: the id in column 'user' is empty"):
        read_own(path)
    path.write_bytes(b"not parquet")
    with pytest.raises(DataError, match="is not a Parquet file"):
        read_own(path)


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("my.csv", "user,item\n", "has a header but no rows"),
        ("my.csv", "user,user,item\n1,2,3\n", "line 1: a column's name appears twice"),
        ("my.xlsx", "user,item\n1,2\n", "unknown file type '.xlsx'.*.csv, .tsv, .parquet"),
    ],
)
def test_own_files_that_cannot_be_read(tmp_path: Path, name: str, text: str, problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        read_own(write(tmp_path, name, text))
